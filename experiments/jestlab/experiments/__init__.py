"""What to run: one file per study, each with `get_config(scale)`. Specs are data: no JAX, no SQL, no I/O."""
