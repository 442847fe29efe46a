# Mutual information of the images that are classified correctly and wrongly, at most eight files.
figure, axes = plt.subplots(2, 4, figsize=(12, 6))
for axis, ((experiment, run, test_set, predictive), file) in zip(axes.flat, shown_files):
    logits, labels, weights, about = read(file)
    if len(logits) < 2:
        axis.text(0.5, 0.5, "one member:\nno mutual information", ha="center", va="center", transform=axis.transAxes, fontsize=7)
        axis.set_title(f"{run} {predictive}\n{test_set}", fontsize=7)
        continue
    information, correct = mutual_information(logits, weights), averaged(logits, weights).argmax(axis=1) == labels
    limits = (0, max(float(information.max()), 1e-9))
    for part, name in ((correct, "correct"), (~correct, "wrong")):
        if part.any():
            axis.hist(information[part], bins=30, range=limits, density=True, alpha=0.6, label=f"{name} ({part.sum()})")
    axis.legend(fontsize=6)
    axis.set_title(f"{run} {predictive}\n{test_set}", fontsize=7)
for axis in axes.flat[len(shown_files):]:
    axis.axis("off")
figure.supxlabel("mutual information [nats]")
figure.tight_layout()
plt.show()
