//! `bella bench`: a tiny case end to end, columns, cases that do not fit, mistakes.

use crate::common::{Place, assert_has, bella, done, error_line, fixture, messages, printed, repository, with};
use ::bella::machine::Precision;
use tch::Device;

fn bench(place: &Place, more: &[&str]) -> std::process::Output {
    let mut command = place.command("bench", &[]);
    command.arg("--checkpoint").arg(repository("assets/vit-digits.pt"));
    command.args(["--batch-size", "2", "--steps", "2", "--predictions", "1", "--prediction-images", "2"]).args(more);
    command.output().unwrap()
}

#[test]
fn every_case_is_a_row_with_numbers() {
    let place = Place::new();
    let output = bench(&place, &["--rank", "2", "--particles", "2,3", "--methods", "map,svgd", "--rounds", "2"]);
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    let table = ::bella::results::store::read(&place.path("results/bench.csv")).unwrap();
    assert_eq!(table.rows.len(), 3);
    let number = |row: usize, column: &str| {
        let cell = table.get(row, column).unwrap_or_else(|| panic!("no column {column}"));
        cell.parse::<f64>().unwrap_or_else(|_| panic!("{column} = `{cell}`"))
    };
    for (row, (method, particles)) in [("map", 1.0), ("svgd", 2.0), ("svgd", 3.0)].into_iter().enumerate() {
        assert_eq!((table.get(row, "method"), table.get(row, "status")), (Some(method), Some("ok")));
        assert_eq!(number(row, "particles"), particles);
        let parameters = number(row, "parameters_per_particle");
        assert_eq!(number(row, "trainable_parameters"), particles * parameters);
        assert_eq!(number(row, "posterior_bytes"), 4.0 * particles * parameters);
        assert_eq!(number(row, "samples"), 4.0);
        let archive = std::fs::metadata(repository("assets/vit-digits.pt")).unwrap().len();
        assert_eq!(number(row, "base_bytes"), archive as f64);
        for column in [
            "train_peak_memory_bytes",
            "predict_peak_memory_bytes",
            "matmul_flop_per_second",
            "gradient_seconds",
            "optimizer_seconds",
            "step_images_per_second",
            "step_flop",
            "step_matmul_share",
            "predict_images_per_second",
            "predict_flop_per_second",
        ] {
            assert!(number(row, column) > 0.0, "{column}");
        }
        for what in ["step", "predict"] {
            let [low, middle, high] = ["_min", "", "_max"].map(|end| number(row, &format!("{what}_seconds{}", end)));
            assert!(0.0 < low && low <= middle && middle <= high);
        }
        let parts: f64 =
            ["input", "gradient", "method", "optimizer"].map(|p| number(row, &format!("{p}_seconds"))).iter().sum();
        assert!(parts < 2.0 * number(row, "step_seconds_max"), "{parts}");
    }
    assert_eq!(number(2, "step_flop") * 2.0, number(1, "step_flop") * 3.0);
    assert_has(&printed(&output), &["step s", "images/s", "% of matmul", "vit-digits"]);
    // The same case again replaces its row.
    assert_eq!(bench(&place, &["--rank", "2", "--particles", "2"]).status.code(), Some(0));
    assert_eq!(::bella::results::store::read(&place.path("results/bench.csv")).unwrap().rows.len(), 3);
}

#[test]
fn a_cached_prefix_and_given_gradients_do_less() {
    let place = Place::new();
    for feed in ["images", "prefix", "gradients"] {
        let output = bench(&place, &["--rank", "2", "--blocks", "1", "--feed", feed]);
        assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    }
    let table = ::bella::results::store::read(&place.path("results/bench.csv")).unwrap();
    let flop = |row: usize| table.get(row, "step_flop").unwrap().parse::<f64>().ok();
    assert!(flop(1) < flop(0));
    assert_eq!(flop(2), None);
}

/// A module computes by its own code, so its operations are not counted; all else is measured as of any network.
#[test]
fn a_module_is_measured_and_its_mistakes_are_those_of_a_config() {
    let place = Place::new();
    let measuring = |more: &[&str]| {
        let mut command = place.command("bench", &[]);
        command.arg("--checkpoint").arg(repository("tests/fixtures/module/residual.pt")).args(["--batch-size", "2"]);
        command.args(["--steps", "1", "--predictions", "1", "--prediction-images", "2"]);
        command.args(["--set", "checkpoint.kind=module"]).args(more);
        command
    };
    let sized = ["--set", "checkpoint.image_size=8", "--subspaces", "full", "--particles", "2"];
    let output = measuring(&sized).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    let table = ::bella::results::store::read(&place.path("results/bench.csv")).unwrap();
    let cell = |column: &str| table.get(0, column).unwrap();
    assert_eq!((cell("status"), cell("particles"), cell("step_flop")), ("ok", "2", ""));
    for column in ["parameters_per_particle", "step_seconds", "gradient_seconds", "predict_seconds"] {
        assert!(cell(column).parse::<f64>().unwrap() > 0.0, "{column}");
    }

    let unsized_module = error_line(measuring(&["--subspaces", "full"]), 2);
    assert_has(&unsized_module, &["checkpoint.image_size", "must be set with kind = \"module\""]);
    if ::bella::machine::device::compute_kind(Precision::Bf16, Device::Cpu).is_err() {
        let refused = error_line(measuring(&[&sized[..], &["--precisions", "bf16"]].concat()), 2);
        return assert_has(&refused, &["--precisions: ", "no bf16 instructions", "use \"f32\" or \"auto\""]);
    }
    let bf16 = measuring(&[&sized[..], &["--precisions", "bf16"]].concat()).output().unwrap();
    assert_eq!(bf16.status.code(), Some(1), "{}", messages(&bf16));
    let table = ::bella::results::store::read(&place.path("results/bench.csv")).unwrap();
    assert_has(table.get(1, "status").unwrap(), &["computes in f32 only"]);
}

#[test]
fn limits_reach_the_processes_that_measure() {
    let place = Place::new();
    let output = bench(&place, &["--rank", "2", "--memory", "0.0001"]);
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    let table = ::bella::results::store::read(&place.path("results/bench.csv")).unwrap();
    assert_has(table.get(0, "status").unwrap(), &["memory"]);
}

#[test]
fn what_does_not_fit_is_a_row_that_says_so() {
    let place = Place::new();
    let output = bench(&place, &["--subspaces", "full", "--methods", "ensemble", "--particles", "100000"]);
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    let table = ::bella::results::store::read(&place.path("results/bench.csv")).unwrap();
    assert_has(table.get(0, "status").unwrap(), &["out of memory", "GiB"]);
    assert_eq!(table.get(0, "step_seconds"), Some(""));
}

#[test]
fn mistakes_end_before_anything_is_measured() {
    let place = Place::new();
    for (arguments, words) in [
        (&["--particle-chunk", "9"][..], &["particle_chunk = 9", "5 particles"][..]),
        (&["--methods", "sgd"], &["invalid value 'sgd'", "svgd-weight"]),
        (&["--subspaces", "half"], &["half", "low-rank"]),
        (&["--precisions", "f16"], &["f16"]),
        (&["--methods", "svgd-weight", "--feed", "gradients"], &["--feed gradients", "leave it out of --methods"]),
        (&["--set", "train.epoch=2"], &["epoch"]),
    ] {
        let output = bench(&place, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", messages(&output));
        assert_has(&messages(&output), words);
    }
    let output = crate::common::bella(&["bench", "--steps", "0", "--predictions", "0"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_has(&messages(&output), &["nothing to measure"]);
    let output = crate::common::bella(&["bench", "--shapes", "vit-z"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_has(&messages(&output), &["unknown shape `vit-z`", "vit-b-32, vit-b-16, vit-l-14, clip-mini"]);
    let output = bench(&place, &["--feed", "prefix"]);
    assert_eq!(output.status.code(), Some(1));
    assert_has(&messages(&output), &["1 of 1 cases failed"]);
    let table = ::bella::results::store::read(&place.path("results/bench.csv")).unwrap();
    assert_has(table.get(0, "status").unwrap(), &["--blocks 6-11"]);
}

#[test]
fn an_estimate_needs_nothing_but_the_config() {
    let estimate = |config: &str, more: &[&str]| {
        with(bella(&["bench", "--estimate", config, "--device", "cpu", "--rate", "6e13"]), more)
    };
    let shape = ["--set", "checkpoint.path=clip-mini.pt", "--image-rate", "3000", "--memory"];
    let text = done(estimate("configs/camelyon17.toml", &[&shape[..], &["44"]].concat()));
    assert_has(&text, &["a small CLIP for 32 px", "16541 steps in 7 epochs", "85054 test images", "5 particles x 128"]);
    assert_has(&text, &["for training and validation (published or configured)"]);
    // Where the images are, they count.
    let place = Place::new();
    let sizes = bella::data::Sizes { classes: 10, present: 10, train: 40, val: 0, test: 30, side: 32, corruptions: 0 };
    crate::common::small_set(&place, "data", "cifar10", &sizes);
    let root = format!("data.cifar10.root={}", place.path("data").display());
    let own = ["--set", &root, "--memory", "4"];
    let own = done(estimate("configs/cifar10.toml", &[&shape[..2], &shape[2..4], &own].concat()));
    assert_has(&own, &["40 for training and validation (counted)", "30 test images"]);
    let small = done(estimate("configs/camelyon17.toml", &[&shape[..], &["0.01"]].concat()));
    assert_has(&small, &["does not fit into 11 MB"]);
    let patient = estimate("configs/cifar10.toml", &["--unset", "warmup_steps"]).output().unwrap();
    assert!(patient.status.success(), "{}", messages(&patient));
    let arc = done(estimate("configs/commonsense/arc-easy.toml", &["--memory", "80"]));
    assert_has(
        &arc,
        &["the shape of Llama 2 7B", "1 x 4483072 parameters", "5067 steps in 9 epochs", "570 test texts"],
    );
    assert_has(&arc, &["300 tokens each: assumed (checkpoint.max_tokens)", "1 particle x 4 texts at once"]);
    assert!(!arc.contains("FGSM"), "{arc}");
    let more = ["--set", "checkpoint.path=mine.pt"];
    assert_has(&error_line(estimate("configs/camelyon17.toml", &more), 1), &["mine.pt", "no published shape"]);
    for mut mistaken in [bella(&["bench", "--rate", "6e13"]), estimate("configs/methods/single.toml", &[])] {
        let output = mistaken.output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert_has(&messages(&output), &["required"]);
    }
}

/// A folder may ask for images of another size than that of its position embeddings; the network takes 16 px by its config, which is 17
/// tokens, and 32 px are 65.
#[test]
fn an_estimate_counts_images_of_the_size_that_a_folder_prepares() {
    let place = Place::new();
    for name in ["config.json", "model.safetensors"] {
        place.write(&format!("vit/{name}"), &std::fs::read(fixture("folders/hf-dinov2").join(name)).unwrap());
    }
    let config = format!(
        "name = \"sized\"\nseed = 1\n[checkpoint]\npath = {:?}\nnormalize = \"imagenet\"\n[head.linear]\n[data.digits]\n[subspace.low-rank]\n\
         rank = 2\n[method.map]\n[optimizer.adamw]\nlr = 1e-3\n[train]\nepochs = 1\nbatch_size = 8\n",
        place.path("vit")
    );
    place.write("sized.toml", config.as_bytes());
    let estimate = |more: &[&str]| {
        let config = place.path("sized.toml").display().to_string();
        let fixed = [
            "bench",
            "--estimate",
            &config,
            "--device",
            "cpu",
            "--rate",
            "6e13",
            "--image-rate",
            "3000",
            "--memory",
            "4",
        ];
        let text = done(with(bella(&fixed), more));
        text.lines().filter(|line| line.contains("FLOP")).map(String::from).collect::<Vec<_>>()
    };
    let own = estimate(&[]);
    let asked =
        b"{\"image_processor_type\": \"BitImageProcessor\", \"do_resize\": true, \"size\": {\"shortest_edge\": 32}, \
                  \"do_center_crop\": true, \"crop_size\": {\"height\": 32, \"width\": 32}}";
    place.write("vit/preprocessor_config.json", asked);
    let (prepared, named) = (estimate(&[]), estimate(&["--set", "checkpoint.image_size=32"]));
    assert!(!own.is_empty() && prepared != own, "{own:?}");
    assert_eq!(prepared, named);
}

/// Every experiment on language networks is estimated before its checkpoint is there.
#[test]
fn every_language_experiment_is_estimated() {
    for folder in ["configs/commonsense", "configs/vqa"] {
        for file in std::fs::read_dir(repository(folder)).unwrap() {
            let config = file.unwrap().path().display().to_string();
            let text =
                done(bella(&["bench", "--estimate", &config, "--device", "cpu", "--rate", "4e14", "--memory", "80"]));
            assert_has(&text, &["the shape of", "training", "evaluation", "at once, of 85.9 GB free"]);
        }
    }
}

#[test]
fn shapes_are_estimated_without_a_config() {
    let estimate = |more: &[&str]| with(bella(&["bench", "--estimate", "--device", "cpu", "--rate", "4e14"]), more);
    let shapes = ["--shapes", "llama-7b,llava-1.5-7b", "--particles", "1,2", "--memory", "80"];
    let text = done(estimate(&shapes));
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| lla")).collect();
    assert_eq!(rows.len(), 4, "{text}");
    // The weights in bf16: two bytes for each of 6,738,415,616 parameters, and of 7,050,828,800.
    assert_has(rows[0], &["| llama-7b ", " 13.48 "]);
    assert_has(rows[2], &["| llava-1.5-7b ", " 14.10 "]);
    assert_has(&text, &["llama-7b: 512 tokens each", "llava-1.5-7b: 1088 tokens each, 576 of them of the image"]);
    let small = done(estimate(&["--shapes", "llama-3-8b,vit-b-32", "--memory", "8"]));
    let fits: Vec<bool> =
        small.lines().filter(|line| line.starts_with("| ")).map(|row| !row.contains("does not fit")).collect();
    assert_eq!(fits, [true, false, true], "{small}");
    for (mistake, why) in [(&[][..], "name a config, or shapes"), (&["--shapes", "llama-8b"], "llama-3-8b")] {
        let output = estimate(mistake).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert_has(&messages(&output), &[why]);
    }
    let both =
        |option: &[&str]| error_line(with(bella(&["bench", "--estimate", "configs/vqa/ok-vqa.toml"]), option), 2);
    for option in [
        ["--shapes", "llama-7b"],
        ["--methods", "ivon"],
        ["--particles", "50"],
        ["--precisions", "bf16"],
        ["--batch-size", "4"],
        ["--rank", "2"],
        ["--particle-chunk", "1"],
    ] {
        assert_has(&both(&option), &[&format!("--estimate CONFIG {}: the config says it", option[0])]);
    }
    let steps = bella(&["bench", "--estimate", "configs/vqa/ok-vqa.toml", "--steps", "3"]).output().unwrap();
    assert_eq!(steps.status.code(), Some(2));
    assert_has(&messages(&steps), &["cannot be used with '--steps <N>'"]);
    // Every precision has a rate of its own.
    let measured = ["--shapes", "clip-mini", "--precisions", "f32,f64", "--memory", "4", "--threads", "1"];
    let rates = done(with(bella(&["bench", "--estimate", "--device", "cpu"]), &measured));
    let rates: Vec<&str> = rates.lines().filter(|line| line.starts_with("rate of ")).collect();
    assert!(
        rates.len() == 2 && rates[0].starts_with("rate of f32: ") && rates[1].starts_with("rate of f64: "),
        "{rates:?}"
    );
    let measured = bella(&["bench", "--shapes", "llama-7b"]).output().unwrap();
    assert_eq!(measured.status.code(), Some(2));
    assert_has(&messages(&measured), &["add --estimate"]);
}
