"""The Caffe runner."""
