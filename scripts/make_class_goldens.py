"""Prints the golden numbers of the tests in src/metrics: of by_class.rs the confusion matrix, and of each class recall, precision
and F1; of balanced_accuracy.rs and auroc.rs their values. Made with scikit-learn 1.9.1.

    python scripts/make_class_goldens.py
"""

import numpy as np
import sklearn
from sklearn.metrics import balanced_accuracy_score, confusion_matrix, precision_recall_fscore_support, roc_auc_score

labels = [(i * i + i // 3) % 4 for i in range(60)]
predicted = [(i * 7 + i // 5) % 5 % 4 for i in range(60)]
print("scikit-learn", sklearn.__version__)
print(confusion_matrix(labels, predicted, labels=range(4)).tolist())
precision, recall, f1, _ = precision_recall_fscore_support(labels, predicted, labels=range(4), zero_division=0)
print([[float(number) for number in of_class] for of_class in zip(recall, precision, f1)])

for pairs in [[[0, 0], [0, 2], [1, 1], [2, 2], [2, 2], [2, 0]], [[0, 0], [0, 1], [1, 1], [1, 0], [1, 1], [1, 1]]]:
    print("balanced accuracy", balanced_accuracy_score(*zip(*pairs)))
two = [i * i % 7 % 2 for i in range(40)]
second = np.array([(i * 5 % 11 - 5 + 2 * label) / 3 for i, label in enumerate(two)], dtype=np.float32).astype(float)
print("AUROC", roc_auc_score(two, 1 / (1 + np.exp(0.25 - second))))
