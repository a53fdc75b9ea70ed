"""Plans that run: virtual devices that hold shards only, and every byte that they exchange."""
