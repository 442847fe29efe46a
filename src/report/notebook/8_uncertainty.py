# Mutual information of the images that are classified correctly and wrongly: the share of each kind up to a value.
figure, axes = grid(len(predictions))
for axis, ((experiment, run, test_set, predictive), file) in zip(axes.flat, predictions.items()):
    logits, labels, weights, about = read(file)
    if len(logits) < 2:
        axis.text(0.5, 0.5, "one member:\nno mutual information", ha="center", va="center", transform=axis.transAxes, fontsize=7)
        axis.set_title(f"{run} {predictive}\n{test_set}", fontsize=7)
        continue
    information, correct = mutual_information(logits, weights), averaged(logits, weights).argmax(axis=1) == labels
    for part, name in ((correct, "correct"), (~correct, "wrong")):
        if part.any():
            values = np.sort(np.maximum(information[part], 1e-9))
            axis.step(values, np.arange(1, len(values) + 1) / len(values), where="post", label=f"{name} ({part.sum()})")
    axis.set_xscale("log")
    axis.legend(fontsize=6)
    axis.set_title(f"{run} {predictive}\n{test_set}", fontsize=7)
figure.supxlabel("mutual information [nats]")
figure.supylabel("share of the images")
figure.tight_layout()
plt.show()
