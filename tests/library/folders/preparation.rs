//! What a folder says of images and classes.

use super::*;

/// The folder says how its images are normalised, so the config need not.
#[test]
fn normalisation_and_interpolation_come_from_the_folder() {
    let place = Place::new();
    let more = "subspace.low-rank.rank = 2\nmethod.map = {}";
    let config = config(&place, "hf-vit", more);
    done(train(&place, &config, &[]));
    let resolved = std::fs::read_to_string(place.run().join("config.toml")).unwrap();
    assert_has(&resolved, &["mean = [0.5, 0.5, 0.5]", "interpolation = \"bilinear\""]);
}

/// `transformers.AutoImageProcessor` 5.24 of a folder with both files takes the table in `processor_config.json`, if there is one.
#[test]
fn the_file_of_transformers_5_counts_before_that_of_4() {
    use bella::model::folder::{Place as Weights, Preprocessing, check_preparation, content};
    let place = Place::new();
    let newer =
        "{\"image_processor\": {\"image_processor_type\": \"ViTImageProcessor\", \"image_mean\": [0.4, 0.4, 0.4]}}";
    let with =
        |json: &str| changed(&place, "hf-vit", |at| std::fs::write(at.join("processor_config.json"), json).unwrap());
    let names = |folder: &Path| -> Vec<String> {
        let name = |file: &PathBuf| file.file_name().unwrap().to_str().unwrap().to_string();
        content(folder).unwrap().iter().map(name).collect()
    };
    let folder = with(newer);
    let found = Preprocessing::of(&folder);
    assert_eq!((found.file, found.normalize.unwrap().mean), (Some("processor_config.json"), [0.4; 3]));
    assert_eq!(names(&folder)[..3], ["config.json", "processor_config.json", "preprocessor_config.json"]);
    // transformers 4 wrote such a file without a table of images.
    let folder = with("{\"patch_size\": 4}");
    assert_eq!(Preprocessing::of(&folder).file, Some("preprocessor_config.json"));
    assert_eq!(names(&folder)[..2], ["config.json", "preprocessor_config.json"]);
    let folder = with("{");
    let why = check_preparation(&Weights::of(&folder).unwrap()).unwrap_err();
    assert_has(&format!("{why:#}"), &["processor_config.json: no JSON"]);
}

/// A config that prepares images in another way than the folder asks for is told so.
#[test]
fn preparations_that_differ_from_the_folders_are_named() {
    use bella::data::Resize;
    let place = Place::new();
    let deviations = |folder: &Path, more: &str, resize: Resize| {
        let start =
            format!("name = \"x\"\nseed = 1\ncheckpoint.path = {folder:?}\nhead.linear = {{}}\ndata.digits = {{}}\n");
        let tree = Tree::parse("x.toml", &(start + more)).unwrap();
        Experiment::read(&tree).unwrap_or_else(|e| panic!("{e}")).checkpoint.deviations(Some(resize))
    };
    let vit = family("hf-vit");
    assert!(deviations(&vit, "", Resize::Stretch).is_empty());
    let other = "checkpoint.normalize = \"imagenet\"\ncheckpoint.interpolation = \"bicubic\"";
    let all = deviations(&vit, other, Resize::ShorterSideCrop);
    assert_eq!(all.len(), 3, "{all:?}");
    assert_has(&all[0], &["checkpoint.normalize is { mean = [0.485", "asks for { mean = [0.5, 0.5, 0.5]"]);
    assert_has(&all[1], &["checkpoint.interpolation is bicubic", "asks for bilinear"]);
    assert_has(&all[2], &["resize is shorter-side-crop", "asks for stretch"]);
    // DINOv2's, CLIP's of older versions, ViT's of older versions, DeiT's.
    for (json, resize) in [
        ("{\"size\": {\"shortest_edge\": 256}, \"do_center_crop\": true}", Resize::ShorterSideCrop),
        (
            "{\"feature_extractor_type\": \"CLIPFeatureExtractor\", \"size\": 224, \"do_center_crop\": true, \"crop_size\": 224}",
            Resize::ShorterSideCrop,
        ),
        ("{\"size\": 224}", Resize::Stretch),
        ("{\"size\": {\"height\": 256, \"width\": 256}, \"do_center_crop\": true}", Resize::Stretch),
    ] {
        let folder = changed(&place, "hf-vit", |at| std::fs::write(at.join("preprocessor_config.json"), json).unwrap());
        let other = if resize == Resize::Stretch { Resize::ShorterSideCrop } else { Resize::Stretch };
        assert!(deviations(&folder, "", resize).is_empty(), "{json}");
        assert_eq!(deviations(&folder, "", other).len(), 1, "{json}");
    }
    let json = "{\"size\": {\"shortest_edge\": 256}, \"do_center_crop\": true, \"crop_size\": 224}";
    let folder = changed(&place, "hf-vit", |at| std::fs::write(at.join("preprocessor_config.json"), json).unwrap());
    let all = deviations(&folder, "checkpoint.crop_pct = 0.9", Resize::ShorterSideCrop);
    assert_eq!(all, ["checkpoint.crop_pct is 0.9, but the checkpoint's folder asks for 0.875: the config's counts"]);
    assert!(deviations(&folder, "", Resize::ShorterSideCrop).is_empty());
}

/// A filter, a size or a step that bella does not compute is not replaced by another one without a word; the user's own word
/// counts.
#[test]
fn preparations_that_bella_does_not_compute_are_refused() {
    let place = Place::new();
    let check = |config: &Path| common::bella(&["check", config.to_str().unwrap()]);
    let of = |family: &str, file: &str, json: &str, more: &str| {
        let folder = changed(&place, family, |at| std::fs::write(at.join(file), json).unwrap());
        let text = format!(
            "name = \"x\"\nseed = 1\ncheckpoint.path = {folder:?}\nhead.linear = {{}}\ndata.digits = {{}}\n\
             optimizer.adamw.lr = 1e-3\nsubspace.low-rank.rank = 2\nmethod.map = {{}}\n\
             train = {{ epochs = 1, batch_size = 8 }}\n{more}\n"
        );
        place.write("x.toml", text.as_bytes())
    };
    let vit = |json: &str, more: &str| of("hf-vit", "preprocessor_config.json", json, more);
    let lanczos = "{\"size\": 16, \"resample\": 1}";
    let line = error_line(check(&vit(lanczos, "")), 2);
    assert_has(&line, &["checkpoint.interpolation", "preprocessor_config.json: resample = 1: bella resizes by"]);
    // What takes the place of a refused value stays in the config of the run, also where it is the usual one.
    let shortest = "{\"image_processor_type\": \"ViTImageProcessor\", \"size\": {\"shortest_edge\": 16}}";
    for (json, key, way) in [
        (lanczos, "checkpoint.interpolation", "checkpoint.interpolation = \"bicubic\""),
        (shortest, "checkpoint.crop_pct", "checkpoint.crop_pct = 1.0"),
    ] {
        assert_has(&error_line(check(&vit(json, "")), 2), &[key]);
        done(common::with(train(&place, &vit(json, way), &[]), &["--force"]));
        done(common::bella(&["eval", "latest", "--out", place.path("results").to_str().unwrap(), "--device", "cpu"]));
    }
    let odd = vit("{\"size\": 16, \"do_flip_channel_order\": true}", "");
    assert_has(&error_line(check(&odd), 2), &["do_flip_channel_order = true: a key that bella does not know"]);
    let border = "{\"architecture\": \"vit_base_patch16_224\", \"pretrained_cfg\": {\"crop_mode\": \"border\"}}";
    let line = error_line(check(&of("timm-vit", "config.json", border, "")), 2);
    assert_has(&line, &["checkpoint.crop_pct", "config.json: crop_mode = \"border\": bella takes the centre"]);
    let output = common::bella(&[
        "inspect",
        changed(&place, "hf-vit", |at| {
            std::fs::write(at.join("preprocessor_config.json"), lanczos).unwrap();
        })
        .to_str()
        .unwrap(),
    ])
    .output()
    .unwrap();
    assert_has(&printed(&output), &["preparation   16 x 16 px, stretch", "refused: ", "resample = 1"]);
}

/// A damaged file may ask for images that no memory holds.
#[test]
fn images_of_impossible_size_are_refused() {
    let place = Place::new();
    for size in [1i64 << 30, 1 << 62, 8192] {
        let json = format!("{{\"size\": {{\"height\": {size}, \"width\": {size}}}}}");
        let folder =
            changed(&place, "hf-vit", |at| std::fs::write(at.join("preprocessor_config.json"), &json).unwrap());
        let config = format!(
            "name = \"x\"\nseed = 1\ncheckpoint.path = {folder:?}\ncheckpoint.normalize = \"clip\"\nhead.linear = {{}}\ndata.digits = {{}}\n"
        );
        let config = place.write("x.toml", config.as_bytes());
        let output = common::bella(&["eval", "-c", config.to_str().unwrap(), "--device", "cpu"]).output().unwrap();
        let (said, rule) =
            (common::messages(&output), format!("preprocessor_config.json asks for images of {size} pixels"));
        assert!(output.status.code() == Some(1) && said.contains(&rule), "{said}");
    }
}

/// A classifier is not taken for one of other classes, or of the same ones in another order, without a word.
#[test]
fn classes_in_another_order_are_refused() {
    let place = Place::new();
    let folder = changed(&place, "hf-vit", |at| {
        let path = at.join("config.json");
        let mut config: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        config["id2label"] = serde_json::json!({ "0": "Fox", "1": "Bear", "2": "polar bear" });
        std::fs::write(path, config.to_string()).unwrap();
    });
    for class in ["bear", "fox", "polar_bear"] {
        let image = place.write(&format!("animals/{class}/a.png"), &[]);
        image::RgbImage::from_pixel(12, 10, image::Rgb([90, 128, 200])).save(image).unwrap();
    }
    let text = format!(
        "name = \"x\"\nseed = 1\ncheckpoint = {{ path = {folder:?}, normalize = \"imagenet\" }}\nhead.checkpoint = {{}}\n\
         data.image-folder = {{ root = {:?}, train = \".\", test = \".\" }}\n",
        place.path("animals")
    );
    let config = place.write("x.toml", text.as_bytes());
    let eval = |more: &str| {
        let mut command = place.command("eval", &[]);
        command.arg("--config").arg(&config).args(["--set", more]);
        command
    };
    let line = error_line(eval("seed=1"), 1);
    assert_has(&line, &["classes in another order: set classes = [\"fox\", \"bear\", \"polar_bear\"]"]);
    let output = common::bella(&["inspect", folder.to_str().unwrap()]).output().unwrap();
    assert_has(&printed(&output), &["classes       Fox, Bear, polar bear"]);
    done(eval("data.image-folder.classes=[\"fox\", \"bear\", \"polar_bear\"]"));
    // A first config has the order, and warns of a normalisation that nothing tells.
    for class in ["bear", "fox", "polar_bear"] {
        for copy in ["b", "c", "d"] {
            let to = place.path(&format!("animals/{class}/{copy}.png"));
            image::RgbImage::from_pixel(12, 10, image::Rgb([90, 12, copy.as_bytes()[0]])).save(to).unwrap();
        }
    }
    let (first, animals) = (place.path("first.toml"), place.path("animals"));
    let words =
        ["init", "--method", "single", "--checkpoint", folder.to_str().unwrap(), "--data", animals.to_str().unwrap()];
    let mut init = common::bella(&words);
    let output = init.arg("--output").arg(&first).output().unwrap();
    assert!(output.status.success(), "{}", common::messages(&output));
    let written = std::fs::read_to_string(&first).unwrap();
    assert_has(
        &written,
        &["classes = [\"fox\", \"bear\", \"polar_bear\"] # in the order of the checkpoint's classifier"],
    );
}

/// What transformers 4 wrote into config.json, where version 5 has other keys.
#[test]
fn folders_of_transformers_4_are_read() {
    let place = Place::new();
    for name in families().iter().filter(|name| name.starts_with("hf-")) {
        let folder = changed(&place, name, |at| {
            let path = at.join("config.json");
            let mut config: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            let table = config.as_object_mut().unwrap();
            table.remove("dtype");
            table.insert("torch_dtype".into(), "float32".into());
            table.insert("transformers_version".into(), "4.40.1".into());
            table.insert("_name_or_path".into(), "somebody/something".into());
            for tower in ["text_config", "vision_config"] {
                let Some(inner) = table.get_mut(tower).and_then(|inner| inner.as_object_mut()) else { continue };
                // Version 4 wrote the settings of text generation there, too.
                inner.insert("top_p".into(), 1.0.into());
                inner.insert("torchscript".into(), false.into());
            }
            std::fs::write(&path, serde_json::to_vec(&config).unwrap()).unwrap();
        });
        let found = folder::identify(&folder, &Fixed::default()).unwrap_or_else(|e| panic!("{name}: {e:#}"));
        assert!(matches!(found.evidence, Evidence::Config { reference: Some(_) }), "{name}: {:?}", found.evidence);
    }
}

#[test]
fn inspect_says_what_a_folder_is_and_how_that_was_checked() {
    let output = common::bella(&["inspect", family("hf-dinov3-gated").to_str().unwrap()]).output().unwrap();
    assert_has(
        &printed(&output),
        &[
            "naming        transformers",
            "heads         2 of width 8 (the config beside the weights)",
            "positions     rotary, centred, base 100 (the config beside the weights)",
            "readout       class (names and shapes of the weights)",
            "gated MLP, keys without bias, 4 tokens in front",
            "reference     features agree with it: relative",
        ],
    );
    let output = common::bella(&["inspect", family("timm-eva02-clip").to_str().unwrap()]).output().unwrap();
    assert_has(
        &printed(&output),
        &["eps 1e-6 (timm's architecture)", "learnt + rotary, indexed, base 10000, scaled to 16 (timm's architecture)"],
    );
    let output = common::bella(&["inspect", family("timm-mean").to_str().unwrap()]).output().unwrap();
    assert_has(
        &printed(&output),
        &["preparation   16 x 16 px, shorter-side-crop, crop_pct 0.875, bicubic, { mean = [0.5, 0.5, 0.5]"],
    );
}
