"""What is trained: towers, losses, selection, data, training and evaluation."""
