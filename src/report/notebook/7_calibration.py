# Reliability diagrams of all runs; the number beside a bin is that of its images.
def grid(count, **shared):
    """A figure with a small panel for each of `count` files, four in a row."""
    rows = max(1, -(-count // 4))
    figure, axes = plt.subplots(rows, 4, figsize=(12, 3 * rows), squeeze=False, **shared)
    for axis in axes.flat[count:]:
        axis.axis("off")
    return figure, axes


figure, axes = grid(len(predictions), sharex=True, sharey=True)
for axis, ((experiment, run, test_set, predictive), file) in zip(axes.flat, predictions.items()):
    logits, labels, weights, about = read(file)
    bins = reliability(averaged(logits, weights), labels)
    axis.plot([0, 1], [0, 1], color="gray", linewidth=0.8, label="confidence is accuracy")
    axis.plot([b[1] for b in bins], [b[2] for b in bins], marker="o", markersize=3, label="bins")
    for count, confidence, hit in bins:
        axis.annotate(str(count), (confidence, hit), fontsize=5, xytext=(2, -6), textcoords="offset points")
    axis.legend(fontsize=6)
    axis.set_title(f"{run} {predictive}\n{test_set}", fontsize=7)
figure.supxlabel("confidence")
figure.supylabel("accuracy")
figure.tight_layout()
plt.show()
