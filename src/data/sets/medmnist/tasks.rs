//! The data sets of MedMNIST with flat images and one label each, as the package `medmnist` 3.0.2 states them (`info.py`).

/// A data set of MedMNIST.
pub struct Task {
    pub key: &'static str,
    /// The numbers of images of train, val and test.
    pub counts: [usize; 3],
    pub classes: &'static [&'static str],
}

/// Returns a data set; `None` if there is none of that name.
pub fn task(key: &str) -> Option<&'static Task> {
    TASKS.iter().find(|task| task.key == key)
}

/// Returns the names of all data sets.
pub fn known() -> String {
    TASKS.iter().map(|task| task.key).collect::<Vec<_>>().join(", ")
}

/// The organs of the three sets of slices.
const ORGANS: &[&str] = &[
    "bladder",
    "femur-left",
    "femur-right",
    "heart",
    "kidney-left",
    "kidney-right",
    "liver",
    "lung-left",
    "lung-right",
    "pancreas",
    "spleen",
];

static TASKS: [Task; 11] = [
    Task {
        key: "pathmnist",
        counts: [89_996, 10_004, 7_180],
        classes: &[
            "adipose",
            "background",
            "debris",
            "lymphocytes",
            "mucus",
            "smooth muscle",
            "normal colon mucosa",
            "cancer-associated stroma",
            "colorectal adenocarcinoma epithelium",
        ],
    },
    Task {
        key: "dermamnist",
        counts: [7_007, 1_003, 2_005],
        classes: &[
            "actinic keratoses and intraepithelial carcinoma",
            "basal cell carcinoma",
            "benign keratosis-like lesions",
            "dermatofibroma",
            "melanoma",
            "melanocytic nevi",
            "vascular lesions",
        ],
    },
    Task {
        key: "octmnist",
        counts: [97_477, 10_832, 1_000],
        classes: &["choroidal neovascularization", "diabetic macular edema", "drusen", "normal"],
    },
    Task { key: "pneumoniamnist", counts: [4_708, 524, 624], classes: &["normal", "pneumonia"] },
    Task { key: "retinamnist", counts: [1_080, 120, 400], classes: &["0", "1", "2", "3", "4"] },
    Task { key: "breastmnist", counts: [546, 78, 156], classes: &["malignant", "normal, benign"] },
    Task {
        key: "bloodmnist",
        counts: [11_959, 1_712, 3_421],
        classes: &[
            "basophil",
            "eosinophil",
            "erythroblast",
            "immature granulocytes(myelocytes, metamyelocytes and promyelocytes)",
            "lymphocyte",
            "monocyte",
            "neutrophil",
            "platelet",
        ],
    },
    Task {
        key: "tissuemnist",
        counts: [165_466, 23_640, 47_280],
        classes: &[
            "Collecting Duct, Connecting Tubule",
            "Distal Convoluted Tubule",
            "Glomerular endothelial cells",
            "Interstitial endothelial cells",
            "Leukocytes",
            "Podocytes",
            "Proximal Tubule Segments",
            "Thick Ascending Limb",
        ],
    },
    Task { key: "organamnist", counts: [34_561, 6_491, 17_778], classes: ORGANS },
    Task { key: "organcmnist", counts: [12_975, 2_392, 8_216], classes: ORGANS },
    Task { key: "organsmnist", counts: [13_932, 2_452, 8_827], classes: ORGANS },
];
