"""A classifier that reads a document to its end: what it is about shows only past the first page.

A tiny model is trained from scratch on made-up documents of up to 600 words, then tested on whole documents and on the
same documents cut at 128 words. For a pretrained encoder on your texts: `longform finetune --help`.

    python examples/classify_long_documents.py
"""

import torch

import longform

LONGEST, CUT, TOPICS = 600, 128, 3
PAD, COMMON, OWN = 0, 20, 5  # word ids: padding, then words of all documents, then OWN words of each topic


def make_documents(count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Word ids (count, LONGEST), their mask, and topics: past the cut, one word in five is one of the topic's own."""
    lengths = torch.randint(LONGEST // 2, LONGEST + 1, (count,))
    positions = torch.arange(LONGEST)
    mask = (positions < lengths[:, None]).long()
    ids = torch.randint(PAD + 1, COMMON, (count, LONGEST))
    topics = torch.randint(0, TOPICS, (count,))
    own = COMMON + topics[:, None] * OWN + torch.randint(0, OWN, (count, LONGEST))
    telling = (positions >= CUT) & (torch.rand(count, LONGEST) < 0.2)
    return torch.where(telling, own, ids) * mask, mask, topics


@torch.no_grad()
def accuracy(model: torch.nn.Module, ids: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor) -> float:
    return (model(input_ids=ids, attention_mask=mask).logits.argmax(dim=1) == labels).float().mean().item()


def main() -> None:
    torch.manual_seed(0)
    config = longform.LinformerConfig(
        vocab_size=COMMON + TOPICS * OWN, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=640, projection="mean", projected_length=40, attention_window=32,
        classifier_pooling="mean", num_labels=TOPICS, hidden_dropout_prob=0.0, initializer_range=0.1,
    )  # fmt: skip
    model = longform.LinformerForSequenceClassification(config)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(1, 61):
        ids, mask, labels = make_documents(8)
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 20 == 0:
            print(f"step {step}: loss {loss.item():.3f}")
    model.eval()
    ids, mask, labels = make_documents(64)
    print(f"accuracy on whole documents: {accuracy(model, ids, mask, labels):.2f}")
    print(f"accuracy on their first {CUT} words: {accuracy(model, ids[:, :CUT], mask[:, :CUT], labels):.2f}")


if __name__ == "__main__":
    main()
