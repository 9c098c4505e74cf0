"""Teaching a converted encoder to behave as its source did, and fine-tuning encoders on labelled texts."""
