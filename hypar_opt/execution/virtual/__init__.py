"""A step on virtual devices: shards as numpy arrays, and a fabric that counts every byte."""
