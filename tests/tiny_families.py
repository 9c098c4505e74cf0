"""Sizes of small encoders of the families whose attention is looked at, by model_type."""

SIZES = {
    "vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40,
    "max_position_embeddings": 20, "initializer_range": 0.5,
}  # fmt: skip
XLM = {"vocab_size": 50, "emb_dim": 24, "n_layers": 2, "n_heads": 3, "max_position_embeddings": 20}
DISTILBERT = {"vocab_size": 50, "dim": 24, "n_layers": 2, "n_heads": 3, "hidden_dim": 40, "max_position_embeddings": 20}
FAMILIES = {
    "bert": SIZES, "roberta": SIZES, "xlm-roberta": SIZES, "electra": {**SIZES, "embedding_size": 16},
    "distilbert": DISTILBERT, "albert": {**SIZES, "embedding_size": 16}, "mpnet": SIZES,
    "xlm": XLM, "flaubert": XLM, "eurobert": {**SIZES, "pad_token_id": 0, "num_key_value_heads": 1},
    "deberta": {**SIZES, "relative_attention": True, "max_relative_positions": 16, "pos_att_type": ["p2c", "c2p"]},
    "deberta-v2": {**SIZES, "relative_attention": True, "position_buckets": 8, "pos_att_type": ["p2c", "c2p"]},
}  # fmt: skip
