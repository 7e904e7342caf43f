"""Turn a results store into verdicts, tables, figures, and reports; count costs in FLOPs."""
