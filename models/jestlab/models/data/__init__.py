"""Image–text data: the synthetic web, tar shards, curation, tokenizer, pipeline and benchmarks.

folder = ensure_web(config, cache)                    datasets.py: made once, or given
indices = select(folder, "similarity > 0.3")          curation.py: and synthetic captions
tokenizer = ensure_tokenizer(folder, 256)             tokenizer.py
batches = training_batches(folder, ...)               pipeline.py: shuffled, decoded, tokenized, resumable
test = load_benchmark(ensure_benchmark(...), 16)      benchmarks.py
"""
