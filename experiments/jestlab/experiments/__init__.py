"""Studies: one file per study, with `get_config(scale)`. Specs are data: no JAX, no SQL, no I/O."""
