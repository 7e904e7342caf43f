"""Readers of runs that other tools have recorded: W&B, MLflow, TensorBoard, and tables.

A reader takes a path and yields runs, one in memory at a time. TensorBoard's needs the library `tensorboard`;
the others do not need the tool that wrote the files. Nothing is imported here: the command line must not wait
for any reader.
"""
