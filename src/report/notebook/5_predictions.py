def read(file):
    """Logits [m, N, C], labels [N], weights [m] that add up to 1, and the header of a predictions file."""
    with safe_open(file, framework="np") as opened:
        logits = opened.get_tensor("logits").astype(np.float64)
        keys = opened.keys()
        labels = opened.get_tensor("labels").astype(np.int64) if "labels" in keys else None
        weights = opened.get_tensor("weights").astype(np.float64) if "weights" in keys else np.ones(len(logits))
        return logits, labels, weights / weights.sum(), opened.metadata()


def softmax(logits):
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def averaged(logits, weights):
    """Probabilities [N, C] of the average that AVERAGE names."""
    if AVERAGE == "lm":
        return softmax(np.einsum("m,mnc->nc", weights, logits))
    return np.einsum("m,mnc->nc", weights, softmax(logits))


def entropy(probabilities):
    return -(probabilities * np.log(np.maximum(probabilities, 1e-300))).sum(axis=-1)


def mutual_information(logits, weights):
    members = softmax(logits)
    mean = np.einsum("m,mnc->nc", weights, members)
    return entropy(mean) - np.einsum("m,mn->n", weights, entropy(members))


def reliability(probabilities, labels, bins=15):
    """Count, confidence and accuracy of each bin (lo, hi] that is not empty."""
    confidence, correct = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    place = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    parts = [place == b for b in range(bins) if (place == b).any()]
    return [(part.sum(), confidence[part].mean(), correct[part].mean()) for part in parts]


# The name of a set is that of its images, where there are several of one name.
names = results.set_index(["stored_set", "images"])["set"].to_dict() if "images" in results else {}
predictions = {}
for file in sorted(RESULTS.glob("runs/*/*/predictions/*.safetensors")):
    with safe_open(file, framework="np") as opened:
        about = opened.metadata()
    # The numbers of members and classes are those of the file, so that large files are read only where they are shown.
    if about.get("condition") == "clean" and about.get("set"):
        test_set = names.get((about["set"], about.get("images")), about["set"])
        predictions[(about["experiment"], about["run"], test_set, about.get("predictive", ""))] = file
print(f"{len(predictions)} files of predictions on clean test sets")
