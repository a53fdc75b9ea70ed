"""A step on virtual devices: numpy arrays that hold shards, and a fabric that counts each byte."""
