"""What to run: one file a study, each a `get_config(scale)`. Specs are data: no JAX, no SQL, no I/O."""
