# Accuracy under attack, by the budget of the attack, of the average that was attacked; the clean accuracy stands at 0.
attacked = results[(results["attack"] != "") & results.get("epsilon", pd.Series(np.nan, results.index)).notna()].copy()
ways = [column for column in ("attack_target", "attack_variant", "attack_resolution", "attack_source") if column in attacked]
attacked[ways] = attacked[ways].astype(object).where(attacked[ways].notna(), "").astype(str)
if attacked.empty:
    print("no attacked results: bella eval RUN --attack fgsm")
for (experiment, test_set, attack, *way), part in attacked.groupby(["experiment", "set", "attack", *ways]):
    figure, axis = plt.subplots(figsize=(6, 3.5))
    target = part["attack_target"].iloc[0] if "attack_target" in part else ""
    accuracy = f"accuracy_{'lm' if target in ('mean-logit', 'mean-loss') else 'pm' if target else AVERAGE}"
    for name, rows in part.groupby("name"):
        same = (clean["experiment"] == experiment) & (clean["set"] == test_set) & (clean["name"] == name)
        shown_columns = ["epsilon", accuracy]
        at_zero = clean[same].assign(epsilon=0.0)[shown_columns]
        by_budget = pd.concat([at_zero, rows[rows["epsilon"] > 0][shown_columns]]).groupby("epsilon")[accuracy]
        mean, deviation = by_budget.mean(), by_budget.std(ddof=1).fillna(0)
        axis.errorbar(mean.index, mean, yerr=deviation, marker="o", markersize=3, label=name)
    axis.set(title=f"{experiment}: {test_set} under {attack}\n{', '.join(filter(None, way))}", xlabel="epsilon", ylabel=accuracy)
    axis.legend(fontsize=7)
    plt.show()
