//! TorchScript archives: opening, parameters, the archive's own forward, and its code.

mod portable;
pub mod write;

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use tch::{CModule, Device, IValue, Kind, Tensor};

use crate::base::tensor::first_line;

/// An opened TorchScript archive, on the CPU, in evaluation mode.
pub struct Archive {
    pub path: PathBuf,
    module: CModule,
    parameters: Vec<(String, Tensor)>,
    code: String,
}

impl Archive {
    /// Opens an archive.
    ///
    /// # Errors
    /// A file that is not there, not readable, no zip, or a zip without TorchScript code.
    pub fn open(path: &Path) -> Result<Archive> {
        let shown = path.display();
        ensure!(path.is_file(), "{shown}: no such checkpoint file: set checkpoint.path to a TorchScript archive (.pt)");
        let code = read_code(path)?;
        let loaded = match portable::rewritten(path, &code)? {
            Some(bytes) => CModule::load_data_on_device(&mut &bytes[..], Device::Cpu),
            None => CModule::load_on_device(path, Device::Cpu),
        };
        let mut module = loaded
            .map_err(|e| anyhow!("{shown}: libtorch cannot load this TorchScript archive: {}", first_line(&e)))?;
        module.f_set_eval().map_err(|e| anyhow!("{shown}: {}", first_line(&e)))?;
        let parameters = module.named_parameters().map_err(|e| anyhow!("{shown}: {}", first_line(&e)))?;
        // Loaded parameters ask for gradients, which would fill `.grad` across the whole backbone.
        let parameters = parameters.into_iter().map(|(name, t)| (name, t.set_requires_grad(false))).collect();
        Ok(Archive { path: path.to_path_buf(), module, parameters, code })
    }

    /// Name and stored tensor of every parameter.
    pub fn parameters(&self) -> &[(String, Tensor)] {
        &self.parameters
    }

    /// Type in which the matrices are stored and images must be fed.
    pub fn kind(&self) -> Kind {
        // A half-precision CLIP keeps its embeddings in f32, and that of its tokens is the largest of all.
        let matrices = self.parameters.iter().filter(|(name, _)| !name.contains("embedding"));
        matrices.max_by_key(|(_, t)| t.numel()).map_or(Kind::Float, |(_, t)| t.kind())
    }

    /// The Python code of the archive, all files joined.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// The archive's own output on `images: [B, 3, S, S]`: `encode_image` where it has one, else `forward`; f32.
    pub fn encode_image(&self, images: &Tensor) -> Result<Tensor> {
        let input = [IValue::Tensor(images.to_kind(self.kind()))];
        if self.has("encode_image") { self.call("encode_image", &input) } else { self.call("forward", &input) }
    }

    /// The archive's own `encode_text` on `tokens: [B, T]`, T its full context; f32.
    ///
    /// # Errors
    /// An archive without that method, or one that does not run here.
    pub fn encode_text(&self, tokens: &Tensor) -> Result<Tensor> {
        ensure!(self.has("encode_text"), "the archive has no encode_text method");
        self.call("encode_text", &[IValue::Tensor(tokens.shallow_clone())])
    }

    fn has(&self, method: &str) -> bool {
        self.code.contains(&format!("def {method}("))
    }

    fn call(&self, method: &str, input: &[IValue]) -> Result<Tensor> {
        let _guard = tch::no_grad_guard();
        let output = self.module.method_is(method, input).map_err(|e| anyhow!("{}", first_line(&e)))?;
        Ok(tensor_of(output)?.to_kind(Kind::Float))
    }
}

/// The tensor, or the first of a tuple (a scripted open_clip model returns image, text and scale).
fn tensor_of(output: IValue) -> Result<Tensor> {
    match output {
        IValue::Tensor(tensor) => Ok(tensor),
        IValue::Tuple(mut parts) if !parts.is_empty() => tensor_of(parts.swap_remove(0)),
        IValue::GenericDict(pairs) => {
            let image = pairs.into_iter().find(|(key, _)| *key == IValue::String("image_features".into()));
            tensor_of(image.context("its forward returns a dictionary without `image_features`")?.1)
        }
        _ => bail!("its forward returns neither a tensor nor a tuple that starts with one"),
    }
}

/// All `code/*.py` of the archive, joined.
fn read_code(path: &Path) -> Result<String> {
    let shown = path.display();
    let file = std::fs::File::open(path).with_context(|| format!("{shown}: cannot open"))?;
    let mut zip = zip::ZipArchive::new(std::io::BufReader::new(file)).map_err(|e| {
        anyhow!("{shown}: not a TorchScript archive, or a truncated one ({e}): export the model with torch.jit.save")
    })?;
    let names = zip.file_names().filter_map(|name| name.ok().map(|n| n.into_owned()));
    let names: Vec<String> = names.filter(|n| n.contains("/code/") && n.ends_with(".py")).collect();
    ensure!(
        !names.is_empty(),
        "{shown}: a zip file without TorchScript code (a state_dict saved by torch.save?): export the module with \
         torch.jit.trace or torch.jit.script and torch.jit.save"
    );
    let mut code = String::new();
    for name in names {
        let mut entry = zip.by_name(&name).with_context(|| format!("{shown}: damaged entry {name}"))?;
        entry.read_to_string(&mut code).with_context(|| format!("{shown}: damaged entry {name}"))?;
        code.push('\n');
    }
    Ok(code)
}
