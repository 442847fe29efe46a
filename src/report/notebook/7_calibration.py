# Reliability diagrams, at most eight.
shown_files = list(predictions.items())[:8]
figure, axes = plt.subplots(2, 4, figsize=(12, 6), sharex=True, sharey=True)
for axis, ((experiment, run, test_set, predictive), file) in zip(axes.flat, shown_files):
    logits, labels, weights, about = read(file)
    bins = reliability(averaged(logits, weights), labels)
    axis.plot([0, 1], [0, 1], color="gray", linewidth=0.8)
    axis.plot([b[1] for b in bins], [b[2] for b in bins], marker="o", markersize=3)
    axis.set_title(f"{run} {predictive}\n{test_set}", fontsize=7)
for axis in axes.flat[len(shown_files):]:
    axis.axis("off")
figure.supxlabel("confidence")
figure.supylabel("accuracy")
figure.tight_layout()
plt.show()
