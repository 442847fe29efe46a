"""Prints the golden numbers of the tests in src/metrics/by_class.rs: the confusion matrix, and of each class recall, precision
and F1. Made with scikit-learn 1.9.1.

    python scripts/make_class_goldens.py
"""

import sklearn
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

labels = [(i * i + i // 3) % 4 for i in range(60)]
predicted = [(i * 7 + i // 5) % 5 % 4 for i in range(60)]
print("scikit-learn", sklearn.__version__)
print(confusion_matrix(labels, predicted, labels=range(4)).tolist())
precision, recall, f1, _ = precision_recall_fscore_support(labels, predicted, labels=range(4), zero_division=0)
print([[float(number) for number in of_class] for of_class in zip(recall, precision, f1)])
