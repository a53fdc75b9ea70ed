from hypothesis import settings

# Time is measured in benchmarks/, never in a test; a fixed seed makes a red run repeat.
settings.register_profile("hypar", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("hypar")
