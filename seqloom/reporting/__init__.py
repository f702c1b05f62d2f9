"""Pages, pictures and model cards: values in, HTML, SVG and Markdown out. Knows nothing of run folders."""
