"""Models of others, built in small, and their files."""

import tests.torch  # noqa: F401  # before all that imports torchvision
