//! Zero-shot heads from class names and templates: the text tower, the head, its cache, and what is refused.

use std::io::{Read, Write};
use std::path::Path;

use crate::common::{Bella, Place, assert_has, bella, done, error_line, fixture, messages, with};
use bella::data::fields::{Fields, PIXELS};
use bella::model::archive::Archive;
use bella::model::folder;
use bella::model::head::tokenizer::Tokenizer;
use bella::model::head::{built_in, tokens};
use bella::model::network::{Network, Weights};
use bella::model::recognition::identify::{Evidence, Fixed, IdentifiedText, identify, identify_text};
use tch::{Kind, Tensor};

/// A config of the embedded digits with a head from the fixture that knows CLIP's vocabulary.
fn config(head: &str) -> String {
    let path = fixture("openai_clip_words.pt");
    format!(
        "name = \"words\"\nseed = 1\n[checkpoint]\npath = {path:?}\nnormalize = \"clip\"\n[head.zero-shot]\n{head}\n\
         [data.digits]\nsubset = {{ train = 20, test = 20 }}\n"
    )
}

fn place(head: &str) -> Place {
    let place = Place::new();
    place.write("words.toml", config(head).as_bytes());
    place
}

/// `bella head` to `head.safetensors`, with a cache of its own.
fn head(place: &Place) -> Bella {
    let (config, file) = (place.path("words.toml"), place.path("head.safetensors"));
    let arguments = ["head", "--device", "cpu", "--threads", "1"];
    let mut command = with(bella(&arguments), &["--config", config.to_str().unwrap(), "--to", file.to_str().unwrap()]);
    command.env("BELLA_CACHE", place.path("cache"));
    command
}

fn weight(path: &Path) -> Tensor {
    let tensors = Tensor::read_safetensors(path).unwrap();
    tensors.into_iter().find(|(name, _)| name == "weight").unwrap().1
}

fn text_tower(archive: &Archive) -> anyhow::Result<Option<IdentifiedText>> {
    tch::set_num_threads(1);
    identify_text(archive, identify(archive, Fixed::default()).unwrap().vit.traits)
}

#[test]
fn text_towers_reproduce_the_archives_own() {
    let names = ["openai_clip", "openai_clip_half", "openai_clip_words", "open_clip_traced", "open_clip_scripted"];
    for name in names {
        let text = text_tower(&Archive::open(&fixture(&format!("{name}.pt"))).unwrap()).unwrap().unwrap();
        assert_eq!(text.tower.traits.heads, 2, "{name}");
        let Evidence::SelfCheck { difference, half, runner_up, .. } = text.evidence else {
            panic!("{name}: {:?}", text.evidence)
        };
        assert!(difference.relative <= if half { 1e-2 } else { 1e-5 }, "{name}: {difference:?}");
        assert!(runner_up.unwrap().1.relative > difference.relative, "{name}");
    }
    for name in ["openai_visual", "timm_traced", "torchvision_scripted"] {
        assert!(text_tower(&Archive::open(&fixture(&format!("{name}.pt"))).unwrap()).unwrap().is_none(), "{name}");
    }
}

/// The head as CLIP's notebook builds it, by the archive's own `encode_text` on its full context.
fn by_the_archive(names: &[&str], templates: &[String], logit_scale: f64) -> Tensor {
    let archive = Archive::open(&fixture("openai_clip_words.pt")).unwrap();
    let module = archive.load().unwrap();
    let unit = |x: Tensor| &x / x.norm_scalaropt_dim(2.0, [-1], true);
    let rows = names.iter().map(|name| {
        let texts = templates.iter().map(|template| {
            let mut row = tokens::tokens(&template.replace("{}", name), 77, tokens::Package::OpenClip);
            row.resize(77, 0);
            row
        });
        let embeddings = unit(archive.encode_text(&module, &tokens::matrix(&texts.collect::<Vec<_>>())).unwrap());
        unit(embeddings.mean_dim(0, false, Kind::Float)) * logit_scale
    });
    Tensor::stack(&rows.collect::<Vec<_>>(), 0)
}

#[test]
fn the_head_is_that_of_the_archives_own_text_encoder() {
    tch::set_num_threads(1);
    let names =
        ["cat", "maple tree", "colt's foot", "7", "a dog", "ship", "truck", "horse", "deer", "polka-dotted frog"];
    let place = place(&format!("templates = \"cifar10\"\nclass_names = {names:?}"));
    done(head(&place));
    let ours = weight(&place.path("head.safetensors"));
    let theirs = by_the_archive(&names, built_in::templates("cifar10").unwrap(), 100.0);
    let difference = (&ours - &theirs).abs().max().double_value(&[]);
    assert!(difference <= 1e-4, "{difference:e}");
    // Random towers: the rows are long and point to different places.
    assert!((ours.norm_scalaropt_dim(2.0, [-1], false) - 100.0).abs().max().double_value(&[]) < 1e-3);
    assert!((ours.get(0) - ours.get(1)).abs().max().double_value(&[]) > 0.1);
}

#[test]
fn a_head_is_built_once_and_again_where_its_cache_is_damaged() {
    let place = place("");
    let first = messages(&head(&place).output().unwrap());
    assert_has(&first, &["10 classes, 10 prompts"]);
    let bytes = std::fs::read(place.path("head.safetensors")).unwrap();
    let second = messages(&head(&place).output().unwrap());
    assert_has(&second, &["from the cache"]);
    assert_eq!(std::fs::read(place.path("head.safetensors")).unwrap(), bytes);

    let cached: Vec<_> = std::fs::read_dir(place.path("cache/heads")).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(cached.len(), 1, "{cached:?}");
    let mut flipped = std::fs::read(&cached[0]).unwrap();
    // The last weight, a little larger.
    *flipped.iter_mut().rev().nth(3).unwrap() ^= 1;
    for damage in [b"damaged".to_vec(), flipped] {
        std::fs::write(&cached[0], damage).unwrap();
        let third = messages(&head(&place).output().unwrap());
        assert_has(&third, &["warning: ", "damaged", "10 prompts"]);
        assert_eq!(std::fs::read(place.path("head.safetensors")).unwrap(), bytes);
    }

    place.write("words.toml", config("templates = [\"a sketch of a {}.\"]").as_bytes());
    assert_has(&messages(&head(&place).output().unwrap()), &["10 classes, 10 prompts"]);
    assert_ne!(std::fs::read(place.path("head.safetensors")).unwrap(), bytes);
}

#[test]
fn a_cache_that_cannot_be_written_is_a_warning() {
    let place = place("");
    place.write("cache", b"a file where the folder should be");
    let output = head(&place).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_has(&messages(&output), &["warning: ", "not cached", "BELLA_CACHE"]);
}

#[test]
fn the_checkpoint_is_evaluated_with_a_built_head() {
    let place = place("");
    let mut eval = with(place.command("eval", &[]), &["--config", place.path("words.toml").to_str().unwrap()]);
    eval.env("BELLA_CACHE", place.path("cache"));
    done(eval);
    let table = bella::results::store::read(&place.path("results/words.csv")).unwrap();
    let accuracy: f64 = table.get(0, "accuracy_lm").unwrap().parse().unwrap();
    assert!((0.0..=1.0).contains(&accuracy));
}

#[test]
fn mistakes_in_the_config_are_named_before_any_weight_is_read() {
    let cases = [
        ("templates = \"cifar11\"", "head.zero-shot.templates = \"cifar11\": must be", "cifar10"),
        ("templates = [\"a photo\"]", "head.zero-shot.templates", "`a photo` must have a {}"),
        ("templates = []", "head.zero-shot.templates", "must not be empty"),
        ("class_names = [\"a\", \"\"]", "head.zero-shot.class_names[1]", "must not be empty"),
        ("class_names = \"names\"", "head.zero-shot.class_names", "data-set, camelyon17, imagenet"),
        ("weights = \"x\"\ntemplates = \"cifar10\"", "head.zero-shot.templates", "either weights or this"),
        ("class_names = [\"a\"]\nclass_names_file = \"x\"", "head.zero-shot.class_names", "class_names_file"),
    ];
    for (settings, key, rule) in cases {
        let place = place(settings);
        assert_has(&error_line(head(&place), 2), &["words.toml:", key, rule]);
    }
}

#[test]
fn what_no_head_can_be_built_from_is_refused() {
    let few = place("class_names = [\"a\", \"b\"]");
    assert_has(&error_line(head(&few), 1), &["head.zero-shot.class_names", "2 names for the data set's 10 classes"]);
    let gone = place("class_names_file = \"no-such-file\"");
    assert_has(&error_line(head(&gone), 1), &["no-such-file", "class_names_file"]);
    for (archive, reason) in [
        ("openai_visual.pt", "has no text tower, so no head can be built from templates: set head.zero-shot.weights"),
        ("openai_clip.pt", "knows 32 tokens, not the 49408 of CLIP's vocabulary: set head.zero-shot.weights"),
    ] {
        let place = place("");
        let path = fixture(archive).display().to_string();
        let line = error_line(with(head(&place), &["--set", &format!("checkpoint.path={path}")]), 1);
        assert_has(&line, &[reason]);
    }
}

#[test]
fn the_resolved_config_says_what_was_usual_for_the_data_set() {
    let place = place("");
    let output = done(with(bella(&["check", "--print"]), &[place.path("words.toml").to_str().unwrap()]));
    assert_has(&output, &["templates = \"digits\"", "class_names = \"data-set\""]);
}

/// SigLIP's towers, with the heads that open_clip's config of a small one does not tell.
const SIGLIP: [(&str, Option<i64>); 3] =
    [("hf-siglip-both", None), ("hf-siglip2-both", None), ("open-clip-siglip", Some(2))];

/// The names and the template of scripts/make_folder_fixtures.py.
fn siglip_names() -> Vec<String> {
    let names =
        ["Cat", "colt's  foot", "polka-dotted_frog", "7 ships", "zebra", "\u{fb01}eld of \u{ff21}", "(a) dog!", "a"];
    let all = names.into_iter().map(str::to_string);
    all.chain(["Truck".to_string(), "the ".repeat(20) + "maple tree"]).collect()
}

const SIGLIP_TEMPLATE: &str = "A photo of a `{}`.";

/// Token by token, then as a head: logits of two images by the folder's own towers are those of transformers and open_clip.
#[test]
fn heads_of_siglip_are_those_of_its_packages() {
    tch::set_num_threads(1);
    for (name, heads) in SIGLIP {
        let path = fixture("folders").join(name);
        let stored = Tensor::read_safetensors(path.join("reference.safetensors")).unwrap();
        let expected = |wanted: &str| stored.iter().find(|(known, _)| known == wanted).unwrap().1.shallow_clone();
        let fixed = Fixed { heads, ..Fixed::default() };
        let text = folder::identify_text(&path, &fixed).unwrap().unwrap();
        let tokenizer = Tokenizer::of(&text.tower.geometry, &path).unwrap();
        let context = text.tower.geometry.context as usize;
        for (row, class) in siglip_names().iter().enumerate() {
            let found = tokenizer.tokens(&SIGLIP_TEMPLATE.replace("{}", class), context).unwrap();
            let theirs: Vec<i64> = expected("prompt_tokens").get(row as i64).try_into().unwrap();
            assert_eq!(found.numbers, theirs, "{name}: {class}");
            assert!(found.is_cut || row != 9, "{name}: {class}");
            assert!(!found.is_cut || class != "a", "{name}: {class}");
        }

        let place = place(&format!("templates = [{SIGLIP_TEMPLATE:?}]\nclass_names = {:?}", siglip_names()));
        let mut command = with(head(&place), &["--set", &format!("checkpoint.path={}", path.display())]);
        if let Some(heads) = heads {
            command.args(["--set", &format!("checkpoint.heads={heads}")]);
        }
        assert_has(&messages(&command.output().unwrap()), &["10 classes, 10 prompts", "is cut: A photo of a `the the"]);
        let built = Tensor::read_safetensors(place.path("head.safetensors")).unwrap();
        let part = |wanted: &str| &built.iter().find(|(known, _)| known == wanted).unwrap().1;
        let image = folder::identify(&path, &fixed).unwrap();
        let pixels = Fields::of(PIXELS, expected("pixels").unsqueeze(0));
        let features = tch::no_grad(|| image.vit.forward(&Weights::frozen(&image.base), &pixels)).squeeze_dim(0);
        let features = &features / features.norm_scalaropt_dim(2.0, [-1], true);
        let logits = features.linear(part("weight"), Some(part("bias")));
        let theirs = expected("zero_shot_logits");
        let difference = ((&logits - &theirs).abs().max() / theirs.abs().max()).double_value(&[]);
        assert!(difference < 1e-5, "{name}: {difference:.1e}");
        assert!(part("bias").get(0).double_value(&[]).abs() > 1e-3, "{name}: no logit_bias");
    }
}

#[test]
fn tokenizers_that_do_not_fit_are_refused() {
    type Change = fn(&Path);
    let cases: [(Change, &str); 3] = [
        (
            |at| std::fs::remove_file(at.join("tokenizer.json")).unwrap(),
            "no such file, which SigLIP's text tower needs",
        ),
        (|at| std::fs::write(at.join("tokenizer.json"), b"{}").unwrap(), "no tokenizer that bella reads"),
        (|at| std::fs::remove_file(at.join("tokenizer_config.json")).unwrap(), "names the `pad_token`"),
    ];
    let place = place("");
    for (change, reason) in cases {
        let copy = place.path("copy");
        let _ = std::fs::remove_dir_all(&copy);
        std::fs::create_dir_all(&copy).unwrap();
        for file in std::fs::read_dir(fixture("folders/hf-siglip-both")).unwrap().flatten() {
            std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
        }
        change(&copy);
        let command = with(head(&place), &["--set", &format!("checkpoint.path={}", copy.display())]);
        assert_has(&error_line(command, 1), &["tokenizer.json: ", reason]);
    }
}

/// The archive as if it had been traced on a GPU.
fn traced_on_a_gpu(name: &str, target: &Path) {
    let mut source = zip::ZipArchive::new(std::fs::File::open(fixture(name)).unwrap()).unwrap();
    let mut copy = zip::ZipWriter::new(std::fs::File::create(target).unwrap());
    let mut replaced = 0;
    for index in 0..source.len() {
        let mut entry = source.by_index(index).unwrap();
        let name = entry.name().unwrap().into_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        if name.ends_with(".py") {
            let code = String::from_utf8(bytes).unwrap();
            replaced += code.matches("torch.device(\"cpu\")").count();
            bytes = code.replace("torch.device(\"cpu\")", "torch.device(\"cuda:0\")").into_bytes();
        }
        let stored = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        copy.start_file(name, stored).unwrap();
        copy.write_all(&bytes).unwrap();
    }
    copy.finish().unwrap();
    assert!(replaced > 0, "{name} names no device");
}

#[test]
fn an_archive_that_names_a_gpu_is_checked_on_the_cpu() {
    let place = Place::new();
    let path = place.path("gpu.pt");
    traced_on_a_gpu("openai_clip_half.pt", &path);
    let archive = Archive::open(&path).unwrap();
    let image = identify(&archive, Fixed::default()).unwrap();
    assert!(matches!(image.evidence, Evidence::SelfCheck { .. }), "{:?}", image.evidence);
    let text = identify_text(&archive, image.vit.traits).unwrap().unwrap();
    assert!(matches!(text.evidence, Evidence::SelfCheck { .. }), "{:?}", text.evidence);
}

#[test]
fn tokenize_prints_a_line_a_text() {
    let output = done(with(bella(&["tokenize"]), &["a photo of a cat.", "hi there"]));
    assert_eq!(output, "49406 320 1125 539 320 2368 269 49407\n49406 1883 997 49407\n");
    let mut piped = with(bella(&["tokenize", "--context", "4"]), &[]);
    piped.write_stdin("a photo of a cat.\nhi\n");
    assert_eq!(done(piped), "49406 320 1125 49407\n49406 1883 49407\n");
}
