"""Training until a test accuracy is reached: batches of an epoch, test accuracy, the witness."""
