"""Named datasets: their facts, where they are found, how they are parsed."""
