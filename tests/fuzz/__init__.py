"""Wrong input of every kind, made from right input, against what must hold of any call."""
