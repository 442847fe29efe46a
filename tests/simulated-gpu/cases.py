"""The cases that run on the CPU and on a GPU, simulated or real, and must agree. A new method, network or command is a line.

A case is `case(NAME, CONFIG, COMMANDS…)`: the config is trained, then each command runs. In commands RUN stands for the
run, ALL for all runs, CONFIG for the config file, DATA for the folder of made images, FILE for a file of this command.
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FIXTURES = ROOT / "tests/fixtures"
CASES = {}


def case(name, config, *commands, **more):
    """Adds a case.

    train=False: the config is not trained. compare=False: results are not compared. seeds=2: trained with each seed.
    tolerance: the largest relative difference. rough=True: only NLLs are compared, for bf16 on the GPU against f32 on the CPU.
    noise=True: draws numbers on the device, so on a real GPU it is compared like a rough one.
    ci=True: in the small set. Other words are kinds of checks, see checks.py.
    """
    assert name not in CASES, name
    CASES[name] = {"config": config, "commands": commands, **more}


BASE = (ROOT / "configs/quickstart.toml").read_text().split("[subspace.low-rank]")[0].replace('"assets/', f'"{ROOT}/assets/')
BASE = re.sub(r"\[data.digits\].*", "[data.digits]\nvalidation = 0.2\nsubset = { train = 240, test = 200 }\n", BASE, flags=re.S)
HEAD = BASE.replace("[head.checkpoint]", "[head.linear]")
FOLDER = re.sub(
    r"\[data.digits\].*",
    '[data.image-folder]\nroot = "DATA/digits"\nresize = "none"\nvalidation = 0.2\n',
    BASE,
    flags=re.S,
)
# A CLIP with both towers, whose text tower writes the head.
CLIP = f"""name = "clip"
seed = 1
[checkpoint]
path = "{FIXTURES}/openai_clip_words.pt"
normalize = "clip"
[head.zero-shot]
[data.digits]
validation = 0.2
subset = {{ train = 40, test = 40 }}
"""
LOW = '[subspace.low-rank]\nrank = 4\ntargets = ["mlp.fc", "mlp.proj"]\n'
LATER = LOW + 'blocks = "2-3"\n'
FULL = "[subspace.full]\n"
ADAM = "[optimizer.adamw]\nlr = 2e-3\nweight_decay = 0.1\n"
SGD = "[optimizer.sgd]\nlr = 0.01\nmomentum = 0.9\n"
NONE = "[optimizer.none]\n"
SVGD = "[method.svgd]\nparticles = 3\ngamma = 0.01\n"
IVON = "[method.ivon]\nlr = 0.03\ness = 1000\nhess_init = 1e-2\nsamples = 4\n"
LAPLACE = "[method.laplace]\nsamples = 16\n"
SWAG = "[method.swag]\nparticles = 2\nstart = 3\nevery = 1\ncolumns = 3\nsamples = 4\n"
SGLD = "[method.sgld]\nlr = 0.05\ness = 200\nstart = 3\nevery = 1\nparticles = 2\n"
PSGLD = "[method.psgld]\nlr = 1e-4\ness = 200\nstart = 3\nevery = 1\nparticles = 2\n"
SGHMC = "[method.sghmc]\nlr = 0.01\nfriction = 0.1\ness = 200\nstart = 3\nevery = 1\nparticles = 2\n"
BBB = "[method.bbb]\nlr = 2e-3\ness = 200\nweight_decay = 2e-4\n"
VOGN = "[method.vogn]\nlr = 1e-3\ness = 200\nhess_init = 1e-2\nweight_decay = 1e-6\ndamping = 1e-3\n"
DROPOUT = "[method.mc-dropout]\nrate = 0.1\nsamples = 4\n"
LAST = 'select = "last-epoch"\n'


def config(subspace, method, optimizer=ADAM, train="", base=BASE):
    return base + subspace + method + optimizer + "[train]\nepochs = 1\nbatch_size = 32\nwarmup_steps = 5\n" + train


CORRUPT = (
    "gaussian-noise:3,shot-noise:2,impulse-noise:1,speckle-noise:1,gaussian-blur:2,contrast:3,brightness:2,saturate:3,pixelate:2,"
    "jpeg:3"
)
FGSM = ["eval", "RUN", "--attack", "fgsm", "--epsilon", "0.01,0.03"]
PGD = ["eval", "RUN", "--attack", "pgd", "--epsilon", "0.03", "--attack-steps", "3"]
EVALS = [["eval", "RUN", "--corrupt", CORRUPT], FGSM, PGD, ["eval", "RUN", "--calibrate"]]
ATTACKS = [
    *[["eval", "RUN", "--attack", attack, "--epsilon", "0.03", "--attack-steps", "3"] for attack in ("apgd-ce", "apgd-dlr", "apgd-t", "fab", "fab-t")],
    ["eval", "RUN", "--attack", "square", "--epsilon", "0.03", "--attack-queries", "5"],
    ["eval", "RUN", "--attack", "autoattack", "--epsilon", "0.03", "--attack-steps", "3", "--attack-queries", "5", "--attack-targets", "2"],
    [*PGD, "--attack-target", "mean-logit", "--attack-resolution", "model", "--attack-from-image"],
    [*PGD, "--attack-target", "mean-loss", "--attack-resolution", "native"],
    [*PGD, "--attack-target", "member-1", "--attack-resolution", "native", "--save-images", "FILE"],
]
SAMPLED = [*FGSM, "--predictive", "sampled"]
OTHER = ["eval", "RUN", "--data", "image-folder=DATA/digits", "-s", 'data.image-folder.resize="none"']
LANDSCAPE = ["landscape", "RUN", "--grid", "3", "--samples", "60"]
# Adam and IVON make full steps of gradients that are rounding (those of the keys); the sgd-* and *-sgd cases are exact.
ADAM_FULL = {"tolerance": 1e-2}
ROUGH = {"tolerance": 0.1, "rough": True}
NOISE = {"noise": True}

# Methods and subspaces.
case("map-low", config(LOW, "[method.map]\n"), *EVALS)
case("map-full", config(FULL, "[method.map]\n", SGD), FGSM, ci=True)
case("ensemble-low", config(LOW, "[method.ensemble]\nparticles = 3\n"), *EVALS, ["soup", "RUN"], ["soup", "RUN", "--space", "factors", "--attack", "fgsm"], ["similarity", "RUN"], LANDSCAPE)
case("ensemble-full", config(FULL, "[method.ensemble]\nparticles = 3\n"), EVALS[0], ["similarity", "RUN"], LANDSCAPE, ["soup", "RUN"], **ADAM_FULL)
for drive in ("own", "shared", "weight"):
    case(f"svgd-low-{drive}", config(LOW, SVGD + f'drive = "{drive}"\n'), *(EVALS if drive == "own" else [FGSM]), ["similarity", "RUN"], ci=drive == "weight")
    case(f"svgd-full-{drive}", config(FULL, SVGD + f'drive = "{drive}"\n'), FGSM, **ADAM_FULL)
    case(f"sgd-full-{drive}", config(FULL, SVGD + f'drive = "{drive}"\n', SGD, "clip_norm = 1.0\n"), FGSM)
    case(f"f64-full-{drive}", config(FULL, SVGD + f'drive = "{drive}"\n', train='precision = "f64"\n'))
case("svgd-global", config(LOW, SVGD + 'kernel = "global"\nmedian = "full"\nlog_n = "n"\ndrive = "weight"\n'))
for space in ("logits", "probabilities", "features", "input-gradients"):
    case(f"svgd-{space}", config(LOW, SVGD + f'space = "{space}"\n'), FGSM, ci=space == "features")
case("svgd-wasserstein", config(LOW, SVGD + 'flow = "wasserstein"\n'), FGSM)
case("svgd-bandwidth", config(LOW, SVGD + "bandwidth = 0.5\n"))
case("svgd-attacks", config(LOW, SVGD), *ATTACKS, ["eval", "RUN", "--precision", "f64"], OTHER)
case("ivon-low", config(LOW, IVON, NONE, "loo_samples = 50\n"), *EVALS, ["eval", "RUN", "--draws", "0"], ["sensitivity", "RUN", "--samples", "100"], **NOISE)
case("ivon-multi", config(LOW, IVON + 'particles = 3\nmc_samples = 2\nestimator = "gradsq"\nclip_radius = 1e-3\nrescale_lr = false\n', NONE), FGSM, ci=True, **NOISE)
case("ivon-full", config(FULL, IVON, NONE), FGSM, **ADAM_FULL, **NOISE)
case("f64-full-ivon", config(FULL, IVON, NONE, 'precision = "f64"\n'), **NOISE)
case("swag-low", config(LOW, SWAG, train=LAST), FGSM, ["soup", "RUN"], ci=True, **NOISE)
case("swag-full", config(FULL, SWAG, SGD, LAST), **NOISE)
case("sgld-low", config(LOW, SGLD, NONE, LAST), FGSM, ci=True, **NOISE)
case("sgld-full", config(FULL, SGLD, NONE, LAST), **NOISE)
case("psgld-low", config(LOW, PSGLD, NONE, LAST), FGSM, **NOISE)
case("sghmc-low", config(LOW, SGHMC, NONE, LAST), FGSM, **NOISE)
MCLMC = "[method.mclmc]\nparticles = 2\ness = 200\nfit_steps = 1\ntune_steps = 4\nstart = 5\nevery = 1\n"
case("mclmc-low", config(LOW, MCLMC, train=LAST), FGSM, **NOISE)
case("sam-low", config(LOW, "[method.sam]\nrho = 0.05\n"), FGSM)
case("sam-full", config(FULL, "[method.sam]\nrho = 0.05\n", SGD))
case("svgd-sharpness", config(LOW, SVGD + "sharpness = 0.05\n"), FGSM)
case("bbb-low", config(LOW, BBB, NONE), FGSM, **NOISE)
case("vogn-low", config(LOW, VOGN, NONE), FGSM, **NOISE)
case("mc-dropout-low", config(LOW, DROPOUT), FGSM, **NOISE)
case("mc-dropout-full", config(FULL, DROPOUT, SGD), **NOISE)
IBDR = "[method.ibdr]\nparticles = 3\nstd = 0.01\ndiversity = 0.02\nascent_lr = 0.05\nradius = 0.05\nkl_weight = 1e-4\n"
case("ibdr", config(LOW, IBDR), **NOISE)
case("tfb", config(LOW, "[method.tfb]\ntolerance = 0.05\nanchors = 40\nsamples = 4\n"), **NOISE)
BAYESTUNE = "[method.bayestune]\nsearch_steps = 3\nlr = 0.01\ness = 200\nshare = 0.05\n"
case("bayestune", config(LOW, BAYESTUNE), **NOISE)
BLOB = "[method.blob]\nstd_lr = 1e-4\nkl_lr = 0.02\nprior_std = 0.2\ninit = 0.05\ncycle = 5\nsamples = 4\n"
case("blob", config(LOW, BLOB), FGSM, **NOISE)
SCALABL = "[method.scalabl]\nstd_lr = 1e-2\ncycle = 5\nsamples = 4\n"
case("scalabl", config(LOW, SCALABL), FGSM, **NOISE)
RANK_ONE = "[subspace.rank-one]\ntargets = [\"attn.qkv\", \"mlp.fc\"]\n"
case("rank-one", config(RANK_ONE, "[method.ensemble]\nparticles = 3\n"), FGSM, **ADAM_FULL)
case("rank-one-sgd", config(RANK_ONE, "[method.ensemble]\nparticles = 3\n", SGD), FGSM)
case("blob-plain", config(LOW, BLOB + "flipout = false\n"), **NOISE)
VBLL = "[method.vbll]\ness = 200\nstd_lr = 1e-2\nrank = 2\nsamples = 4\n"
case("vbll-low", config(LOW, VBLL, base=HEAD), FGSM, **NOISE)
case("vbll-last-layer", config("[subspace.last-layer]\n", VBLL, base=HEAD), **NOISE)
case("last-layer", config("[subspace.last-layer]\n", SVGD, base=HEAD))
case("bayesvlm", config("[subspace.projections]\n", "[method.bayesvlm]\nsamples = 4\n", NONE, base=CLIP), SAMPLED, **NOISE)
# Its second moment is a difference of gradients, which is rounding where the curvature is near 0.
case("adahessian-low", config(LOW, SVGD, "[optimizer.adahessian]\nlr = 0.01\n"), **ROUGH)
ONE_LAYER = LOW.replace("rank = 4", "rank = 1").replace('"mlp.fc", ', "")
for structure, more in [("kron", ""), ("kron", 'tokens = "reduce"\n'), ("kron", "wide = 32\nkept = 4\n"), ("diag", ""), ("full", "")]:
    label = "laplace-" + structure + {"": "", "t": "-reduce", "w": "-wide"}[more[:1]]
    layers = ONE_LAYER + ('blocks = "3"\n' if structure == "full" else "")
    ways = [["eval", "RUN", "--predictive", word] for word in ("mc", "probit", "bridge", "sampled")]
    case(label, config(layers, LAPLACE + f'structure = "{structure}"\n{more}particles = 2\n'), *ways, SAMPLED, **NOISE)
case("laplace-validation", config(LOW, LAPLACE + 'tuning = "validation"\npredictive = "probit"\n'))
case("laplace-fixed", config(LOW, LAPLACE + 'prior_precision = 2.0\npredictive = "bridge"\n'), ci=True)
case("laplace-head", config(FULL, LAPLACE, base=HEAD), ["eval", "RUN", "--predictive", "probit"], ["eval", "RUN", "--predictive", "sampled"], **NOISE)
case("laplace-head-low", config(LOW, LAPLACE + 'parameters = "last-layer"\nstructure = "full"\n', base=HEAD), SAMPLED, **NOISE)
case("head-random", config(LOW, LAPLACE + 'parameters = "last-layer"\n', base=HEAD.replace("[head.linear]", "[head.random-features]\nfeatures = 32")), SAMPLED, **NOISE)
case("head-linear-low", config(LOW, SVGD, base=HEAD), *EVALS[:2])
case("head-linear-full", config(FULL, SVGD, base=HEAD), FGSM, ["soup", "RUN"], **ADAM_FULL)

# Optimizers and training.
case("sgd", config(LOW, SVGD, "[optimizer.sgd]\nlr = [0.01, 0.02, 0.03]\nmomentum = 0.9\n", "clip_norm = 0.5\n"))
case("rates-shared", config(LOW, SVGD, ADAM.replace("2e-3", "[1e-3, 2e-3, 3e-3]"), 'batches = "shared"\nschedule = "constant"\nclip_norm = 1.0\n'))
case("accumulate", config(LOW, SVGD, train="accumulate = 3\n"))
case("chunk", config(LOW, SVGD, train="particle_chunk = 2\n"), *EVALS[:3])
case("chunk-full", config(FULL, SVGD, train="particle_chunk = 2\naccumulate = 2\n"), **ADAM_FULL)
case("recompute", config(LOW, SVGD, train="recompute = true\n"))
case("recompute-full", config(FULL, SVGD, train="recompute = true\naccumulate = 2\n"), **ADAM_FULL)
case("sgd-full-head", config(FULL, SVGD, SGD, "recompute = true\nparticle_chunk = 2\naccumulate = 2\n", base=HEAD), FGSM)
for place in ("memory", "disk", "off"):
    case(f"prefix-{place}", config(LATER, SVGD, train=f'prefix_cache = "{place}"\n'), FGSM)
case("prefix-recompute", config(LATER, IVON + "particles = 2\n", NONE, 'prefix_cache = "memory"\nrecompute = true\naccumulate = 2\n'), **NOISE)
case("bf16-low", config(LOW, SVGD, train='precision = "bf16"\n'), EVALS[0], FGSM, **ROUGH)
case("bf16-full", config(FULL, SVGD, train='precision = "bf16"\nrecompute = true\n'), FGSM, **ROUGH)
case("bf16-ivon", config(LOW, IVON, NONE, 'precision = "auto"\n'), FGSM, **ROUGH, **NOISE)
case("bf16-laplace", config(LOW, LAPLACE, train='precision = "bf16"\n'), SAMPLED, **ROUGH, **NOISE)
case("f16-low", config(LOW, SVGD, train='precision = "f16"\n'), EVALS[0], FGSM, **ROUGH)
# Its first step of six is skipped, since a loss times 65,536 has gradients that f16 does not hold.
case("f16-full", config(FULL, SVGD, train='precision = "f16"\nrecompute = true\n'), FGSM, compare=False)
case("mixed-images", config(LOW, SVGD, train="[train.mixup]\nalpha = 0.8\ncutmix_alpha = 1.0\n"))
case("averaged", config(LOW, SVGD, train="[train.ema]\ndecay = 0.9\nuse_warmup = true\n"))
case("f64", config(LOW, SVGD, train='precision = "f64"\n'), FGSM)
AUGMENTED = BASE.replace("validation = 0.2", 'validation = 0.2\nlabel_noise = 0.1\naugment = { crop = "random-resized", flip = 0.5 }')
case("augment", config(LOW, SVGD, base=AUGMENTED))
case("image-files", config(LOW, SVGD, base=FOLDER), FGSM)

# Networks: every naming and folder that tests/fixtures has is evaluated as it is, some are trained.
SMALL = "subset = { train = 40, test = 40 }\n"
for archive, size in [("timm_scripted.pt", 8), ("timm_layer_scale.pt", 8), ("torchvision_scripted.pt", 8), ("openai_visual.pt", 8)]:
    text = f'name = "net"\nseed = 1\n[checkpoint]\npath = "{FIXTURES}/{archive}"\nnormalize = "clip"\n[head.linear]\n[data.digits]\n{SMALL}'
    case(f"net-{archive.split('.')[0]}", config(LOW, SVGD, base=text), FGSM)
FOLDERS = ["hf-vit", "hf-deit-distilled", "hf-mae", "hf-dinov2-registers", "hf-dinov2-swiglu", "hf-dinov3-gated", "hf-siglip", "hf-clip"]
FOLDERS += ["timm-dinov3", "timm-mean", "timm-siglip", "open-clip", "hf-beit", "hf-data2vec", "timm-eva", "timm-eva02-clip", "open-clip-eva02"]


def in_folder(folder):
    # This folder names a published architecture, which has more heads than the fixture.
    heads = "heads = 2\n" if folder == "open-clip-eva02" else ""
    return f'name = "net"\nseed = 1\n[checkpoint]\npath = "{FIXTURES}/folders/{folder}"\nnormalize = "imagenet"\n{heads}[head.linear]\n[data.digits]\n{SMALL}'


for folder in FOLDERS:
    text = in_folder(folder)
    case(f"net-{folder}", config("[subspace.low-rank]\nrank = 2\n", SVGD, base=text), FGSM)
for precision, bits in [("f32", {}), ("bf16", ROUGH)]:
    train = f'precision = "{precision}"\n'
    predict = ["predict", "RUN", "DATA/photographs", "-o", "FILE.csv", "--contact-sheet", "FILE.png"]
    case(f"clip-svgd-{precision}", config("[subspace.low-rank]\nrank = 2\n", SVGD, train=train, base=CLIP), *EVALS, *ATTACKS[-2:], predict, ["soup", "RUN"], **bits)
    case(f"clip-full-{precision}", config(FULL, "[method.map]\n", SGD, train + "recompute = true\n", base=CLIP), FGSM, **bits)
case("words", CLIP, ["head", "-c", "CONFIG", "--to", "FILE.safetensors"], ["eval", "-c", "CONFIG"], ["eval", "-c", "CONFIG", "--attack", "fgsm"], train=False)
ZERO_SHOT = [["eval", "-c", "CONFIG"], ["eval", "-c", "CONFIG", "--precision", "bf16", "--corrupt", "jpeg:2"], ["eval", "-c", "CONFIG", "--attack", "pgd", "--attack-steps", "2"]]
case("zero-shot", CLIP, *ZERO_SHOT, train=False, **ROUGH)

# Commands.
CONFORMAL = ["eval", "RUN", "--conformal", "0.2"]
case("conformal", config(LOW, SVGD), CONFORMAL, [*CONFORMAL, "--conformal-thresholds", "class-wise", "--conformal-draw", "random"])
PEFT = "[subspace.low-rank]\nrank = 2\n"
GOES = [["export", "RUN", "--to", form, "-o", "FILE"] for form in ("peft", "weights")]
GOES += [["export", "RUN", "--to", form, "-o", "FILE", "--preprocess"] for form in ("torchscript", "onnx")]
BACK = ["import", "-c", "CONFIG", "-s", "name=back", "MADE0"]
case("export", config(PEFT, SVGD, base=in_folder("timm-vit")), *GOES)
# The id of an imported run depends on the adapters' bits, so the two devices' runs have different names.
case("import", config(PEFT, SVGD, base=in_folder("timm-vit")), GOES[0], BACK, compare=False)
for subspace in ("low", "full"):
    merges = [["merge", "ALL", "--by", "mean"], ["merge", "ALL", "--by", "posterior", "--prior", "1"], ["merge", "ALL", "--by", "squared-gradients", "--images", "40"]]
    case(f"merge-{subspace}", config(LOW if subspace == "low" else FULL, IVON, NONE), *merges, seeds=2, **NOISE)
BENCH = ["bench", "--shapes", "clip-mini", "--subspaces", "low-rank,full", "--particles", "2", "--steps", "1", "--batch-size", "2"]
ALL = "map,ensemble,svgd,svgd-own,svgd-shared,svgd-weight,ivon"
case("bench", "", [*BENCH, "--methods", ALL, "--predictions", "1", "--prediction-images", "4"], [*BENCH, "--methods", ALL.replace("svgd-weight,", ""), "--predictions", "0", "--feed", "gradients"],
     ["bench", "--shapes", "clip-mini", "--blocks", "3-5", "--feed", "prefix", "--steps", "1", "--predictions", "0", "--recompute"], train=False, compare=False)

# A network that answers questions about images, by free answers and by classes.
LLAVA = f"""name = "vqa"
seed = 1
[checkpoint]
path = "{FIXTURES}/llava/transformers-4"
max_tokens = 96
[head.answers]
tokens = 3
[data.vqa-v2]
root = "DATA/vqa"
validation = 0.25
"""
CLASSES = LLAVA.replace("[head.answers]\ntokens = 3", "[head.label-words]").replace("validation", 'labels = ["yes", "no"]\nvalidation')
ANSWERING = '[subspace.low-rank]\nrank = 2\ntargets = ["attn.q", "attn.v", "lm_head"]\n'
SEEING = '[subspace.low-rank]\nrank = 2\ntargets = ["vision.attn.qkv", "projector.linear_1", "mlp.fc"]\n'
case("llava-answers", config(ANSWERING, SVGD, base=LLAVA), ["eval", "RUN", "--split", "train"], ["soup", "RUN"], ci=True)
case("llava-vision", config(SEEING, SVGD, train="recompute = true\n", base=LLAVA))
case("llava-full", config(FULL, "[method.map]\n", SGD.replace("0.01", "1e-4"), base=LLAVA))
# Steps without epsilon amplify roundings, so f64 says whether both devices compute the same.
case("llava-ivon", config(ANSWERING, IVON, NONE, base=LLAVA), **ADAM_FULL, **NOISE)
case("f64-llava-ivon", config(ANSWERING, IVON, NONE, 'precision = "f64"\n', base=LLAVA), **NOISE)
case("llava-classes", config(ANSWERING, SVGD, base=CLASSES), ["eval", "RUN", "--calibrate"])
case("llava-laplace", config(ANSWERING, LAPLACE, base=CLASSES), **NOISE)
case("waits-llava", config(ANSWERING, SVGD, train="prefix_cache = \"off\"\n", base=LLAVA), waits=True)

PALIGEMMA = LLAVA.replace("llava/transformers-4", "paligemma/gemma2").replace(
    'root = "DATA/vqa"', 'root = "DATA/vqa"\nprompt = "<image>answer en {question}"\nresize = "stretch"')
TIED = ANSWERING.replace(', "lm_head"', "")
case("paligemma-answers", config(TIED, SVGD, base=PALIGEMMA), ["eval", "RUN", "--split", "train"], ["soup", "RUN"], ci=True)
case("paligemma-vision", config(SEEING.replace("linear_1", "linear"), SVGD, train="recompute = true\n", base=PALIGEMMA))
case("paligemma-nf4", config(TIED, SVGD, base=PALIGEMMA.replace("max_tokens", 'quantize = "nf4"\nmax_tokens')))

# Language networks and a text encoder on sentences, by label words and by a classifier; what members write together.
LLAMA = f"""name = "texts"
seed = 1
[checkpoint]
path = "{FIXTURES}/language/llama-3"
[head.label-words]
[data.jsonl]
root = "DATA/texts"
prompt = "is {{text}} big ?"
labels = ["no", "yes"]
validation = 0.25
"""
ENCODER = LLAMA.replace("language/llama-3", "encoder/roberta/roberta.pt").replace("[head.label-words]", 'kind = "module"\n[head.linear]').replace("is {text} big ?", "{text}")
TUNED = '[subspace.low-rank]\nrank = 2\ntargets = ["attn.q", "attn.v", "mlp.proj", "lm_head"]\n'
LINEAR = '[subspace.low-rank]\nrank = 2\ntargets = ["linear"]\n'
WRITES = ["predict", "RUN", "DATA/texts/new.jsonl", "--generate", "8", "--format", "jsonl", "-o", "FILE.jsonl"]
NAMES = ["predict", "RUN", "DATA/texts/new.jsonl", "-o", "FILE.csv"]
case("llama-svgd", config(TUNED, SVGD, base=LLAMA), ["eval", "RUN", "--calibrate"], WRITES, NAMES, ["soup", "RUN"], ["similarity", "RUN"], ci=True)
case("llama-ensemble", config(TUNED, "[method.ensemble]\nparticles = 3\n", train='prefix_cache = "off"\nrecompute = true\n', base=LLAMA), WRITES)
case("llama-prefix", config(TUNED + 'blocks = "1"\n', SVGD, train='prefix_cache = "memory"\n', base=LLAMA), WRITES)
case("llama-full", config(FULL, "[method.map]\n", SGD.replace("0.01", "1e-3"), base=LLAMA), WRITES)
case("llama-ivon", config(TUNED, IVON, NONE, base=LLAMA), ["eval", "RUN", "--draws", "0"], **ADAM_FULL, **NOISE)
case("f64-llama-ivon", config(TUNED, IVON, NONE, 'precision = "f64"\n', base=LLAMA), **NOISE)
case("llama-laplace", config(TUNED, LAPLACE, base=LLAMA), NAMES, **NOISE)
case("llama-last-layer", config("[subspace.last-layer]\n", LAPLACE, base=LLAMA), **NOISE)
case("llama-bf16", config(TUNED, SVGD, train='precision = "bf16"\n', base=LLAMA), WRITES, compare=False)
for bits in ("int8", "nf4"):
    case(f"llama-{bits}", config(TUNED, SVGD, base=LLAMA.replace("llama-3", f'llama-wide"\nquantize = "{bits}')), WRITES, ci=bits == "nf4")
for network in ("llama-gptq", "llama-awq", "qwen3", "gemma", "gemma2", "gemma3", "olmo2", "smollm3"):
    case(f"net-{network}", config(TUNED.replace(', "lm_head"', ""), SVGD, base=LLAMA.replace("llama-3", network)), WRITES)
FUSED = '[subspace.low-rank]\nrank = 2\ntargets = ["attn.qkv", "mlp.proj"]\n'
case("net-phi3", config(FUSED, SVGD, base=LLAMA.replace("llama-3", "phi3")), WRITES)
case("net-gpt2", config(FUSED, SVGD, base=LLAMA.replace("llama-3", "gpt2").replace("label-words", "linear")))
for network in ("bert", "roberta", "deberta-v2", "modernbert"):
    layer = "attn.qkv" if network == "modernbert" else "attn.q"
    text = ENCODER.replace("encoder/roberta/roberta.pt", f"encoder/folders/{network}").replace('kind = "module"\n', "")
    case(f"folder-{network}", config(LINEAR.replace("linear", layer), SVGD, base=text), NAMES)
for network in ("llama", "llama-linear", "mistral"):
    case(f"net-{network}", config(TUNED, SVGD, base=LLAMA.replace("llama-3", network)), WRITES)
# No label word is one token of its tokenizer.
case("net-qwen2", config(TUNED.replace(', "lm_head"', ""), SVGD, base=LLAMA.replace("llama-3", "qwen2").replace("label-words", "linear")))
case("encoder-svgd", config(LINEAR, SVGD, base=ENCODER), NAMES, ["soup", "RUN"])
case("encoder-full", config(FULL, "[method.map]\n", SGD, base=ENCODER))
case("encoder-ivon", config(LINEAR, IVON, NONE, base=ENCODER), **NOISE)
case("waits-llama", config(TUNED, SVGD, train="prefix_cache = \"off\"\n", base=LLAMA), waits=True)

# No host waits between two looks at the losses, whatever the images come from.
STEPS = "eval_batch_size = 64\n"
case("waits-resident", config(LOW, SVGD, train=STEPS), waits=True, ci=True)
case("waits-streamed", config(LOW, SVGD, train=STEPS, base=FOLDER), waits=True, ci=True)
case("waits-augmented", config(LOW, SVGD, train=STEPS, base=AUGMENTED), waits=True, ci=True)
case("waits-prefix-memory", config(LATER, SVGD, train=STEPS + 'prefix_cache = "memory"\n'), waits=True, ci=True)
case("waits-prefix-disk", config(LATER, SVGD, train=STEPS + 'prefix_cache = "disk"\n'), waits=True)
case("waits-mixed", config(LOW, SVGD, train=STEPS + "[train.mixup]\nalpha = 0.8\n[train.ema]\ndecay = 0.9\n"), waits=True)
case("waits-full", config(FULL, SVGD + 'drive = "shared"\n', SGD, STEPS + "clip_norm = 1.0\nrecompute = true\n"), waits=True)
case("waits-weight", config(LOW, SVGD + 'drive = "weight"\n', ADAM, STEPS + "accumulate = 2\nparticle_chunk = 2\n"), waits=True)
case("waits-ivon", config(LOW, IVON + "particles = 2\n", NONE, STEPS), waits=True)
# As many states and snapshots whatever the number of steps, since they are written at the end.
for method, text in [("sgld", SGLD + "samples = 2\n"), ("psgld", PSGLD + "samples = 2\n"), ("sghmc", SGHMC + "samples = 2\n"), ("bbb", BBB), ("vogn", VOGN)]:
    case(f"waits-{method}", config(LOW, text, NONE, STEPS + LAST), waits=True)
case("waits-sam", config(LOW, "[method.sam]\nrho = 0.05\n", ADAM, STEPS), waits=True)
case("waits-mc-dropout", config(LOW, DROPOUT, ADAM, STEPS), waits=True)
for method, text in [("ibdr", IBDR), ("blob", BLOB), ("vbll", VBLL), ("bayestune", BAYESTUNE)]:
    case(f"waits-{method}", config(LOW, text, ADAM, STEPS, base=HEAD if method == "vbll" else BASE), waits=True)
case("waits-adahessian", config(LOW, SVGD, "[optimizer.adahessian]\nlr = 0.01\n", STEPS), waits=True)
case("waits-swag", config(LOW, SWAG, ADAM, STEPS + LAST), waits=True)

# Memory, and runs that were killed.
case("memory-peaks", "", ["bench", "--shapes", "clip-mini", "--particles", "4", "--steps", "1", "--batch-size", "8", "--prediction-images", "1", "--predictions", "1"], train=False, compare=False, peaks=True, ci=True)
case("memory-results", config(LOW, SVGD), compare=False, results=True, ci=True)
case("memory-cut", config(LOW, SVGD.replace("3", "8"), train="eval_batch_size = 200\n"), compare=False, cut=True, ci=True)
case("resume-svgd", config(LOW, SVGD), resume=True, ci=True)
case("resume-f16", config(FULL, SVGD, train='precision = "f16"\n[train.ema]\ndecay = 0.9\n[train.mixup]\nalpha = 0.8\n'), resume=True)
case("resume-ivon", config(LOW, IVON, NONE), resume=True)
case("resume-swag", config(LOW, SWAG, train=LAST), resume=True)
case("resume-sgld", config(LOW, SGLD, NONE, LAST), resume=True)
case("resume-prefix", config(LATER, SVGD, train='prefix_cache = "disk"\n'), resume=True)
