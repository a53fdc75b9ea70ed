"""Speed, as ratios measured in one run: `make bench`. Machines differ; ratios carry over."""
