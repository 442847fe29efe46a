histories = {}
for run in sorted(RESULTS.glob("runs/*/*/train.csv")):
    history = pd.read_csv(run)
    if len(history):
        histories[f"{run.parts[-3]}/{run.parts[-2]}"] = history
QUANTITIES = {"train_loss": "training loss", "validation_nll_lm": "validation NLL", "validation_accuracy_lm": "validation accuracy"}
figure, axes = plt.subplots(1, len(QUANTITIES), figsize=(12, 3.2))
for axis, (column, title) in zip(axes, QUANTITIES.items()):
    for name, history in histories.items():
        if column in history and history[column].notna().any():
            axis.plot(history["epoch"], history[column], marker="." if len(history) < 3 else None, label=name)
    axis.set(title=title, xlabel="epoch")
handles, names = axes[0].get_legend_handles_labels()
if handles:
    figure.legend(handles, names, fontsize=6, ncol=3, loc="upper center", bbox_to_anchor=(0.5, 0))
figure.tight_layout()
plt.show()
