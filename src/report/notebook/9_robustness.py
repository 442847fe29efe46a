# Accuracy under attack, by the budget of the attack; the clean accuracy stands at 0.
attacked = results[(results["attack"] != "") & results.get("epsilon", pd.Series(np.nan, results.index)).notna()]
if attacked.empty:
    print("no attacked results: bella eval RUN --attack fgsm")
for (experiment, test_set, attack), part in attacked.groupby(["experiment", "set", "attack"]):
    figure, axis = plt.subplots(figsize=(6, 3.5))
    for name, rows in part.groupby("name"):
        same = (clean["experiment"] == experiment) & (clean["set"] == test_set) & (clean["name"] == name)
        shown_columns = ["epsilon", f"accuracy_{AVERAGE}"]
        at_zero = clean[same].assign(epsilon=0.0)[shown_columns]
        by_budget = pd.concat([at_zero, rows[rows["epsilon"] > 0][shown_columns]]).groupby("epsilon")[f"accuracy_{AVERAGE}"]
        mean, deviation = by_budget.mean(), by_budget.std(ddof=1).fillna(0)
        axis.errorbar(mean.index, mean, yerr=deviation, marker="o", markersize=3, label=name)
    axis.set(title=f"{experiment}: {test_set} under {attack}", xlabel="epsilon", ylabel="accuracy")
    axis.legend(fontsize=7)
    plt.show()
