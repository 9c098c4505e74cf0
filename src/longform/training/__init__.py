"""Training on Hugging Face's Trainer: distillation, fine-tuning, and pre-training from scratch."""
