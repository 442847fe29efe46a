# Mean over seeds; the bar of an error is one standard deviation where there are at least two seeds.
for (experiment, test_set), part in means.groupby(level=["experiment", "set"]):
    names = part.index.get_level_values("name")
    figure, axes = plt.subplots(1, len(shown), figsize=(3.2 * len(shown), 0.6 + 0.35 * len(names)), squeeze=False, sharey=True)
    for axis, (column, title) in zip(axes[0], shown.items()):
        errors = deviations.loc[part.index, column].fillna(0)
        axis.barh(names, part[column], xerr=errors, color="tab:blue", alpha=0.75, label="mean ± standard deviation over seeds")
        axis.set_title(title)
    figure.legend(*axes[0][0].get_legend_handles_labels(), fontsize=6, loc="upper right")
    figure.suptitle(f"{experiment}: {test_set}")
    figure.tight_layout()
    plt.show()
