//! TorchScript archives: opening, parameters, the archive's own forward pass, and its code.
//!
//! Opening an archive runs nothing in it. The zip file is parsed once; names, shapes and tensors are read here, and the code is
//! checked against a list of operators. When the archive's own forward pass is called, an archive is written anew from
//! what was checked (`clean`), tried in a process of its own if it is not known (`trial`), and only then loaded by libtorch.

mod apart;
mod clean;
mod code;
mod container;
mod directory;
mod listing;
mod operators;
pub mod stored;
mod tokens;
pub mod trial;
mod types;
pub mod write;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, anyhow, bail, ensure};
use tch::{CModule, Device, IValue, Kind, Tensor};

use crate::base::tensor::first_line;
use crate::machine::memory_file::MemoryFile;
use clean::Parts;
use container::{Code, Container};
use listing::Listed;
use trial::Call;

pub use clean::call;
pub use stored::Stored;

/// Whether archives are loaded whatever their code calls.
static TRUSTED: AtomicBool = AtomicBool::new(false);

/// The method of a CLIP model that takes texts.
const TEXT_METHOD: &str = "encode_text";

/// The error of an archive without parameters, of which no kind of network can be made.
pub const NO_PARAMETERS: &str = "the TorchScript module lists no parameters (was it frozen by torch.jit.freeze or traced by \
                                 tch?): export the unfrozen module";

/// Allows archives to be loaded whatever their code calls from now on. The user knows where they come from.
pub fn trust() {
    TRUSTED.store(true, Ordering::Relaxed);
}

/// An opened TorchScript archive.
pub struct Archive {
    pub path: PathBuf,
    container: Container,
    listed: Listed,
    /// The names of the tensors that `forward` takes; empty if the code does not tell.
    inputs: Vec<String>,
    /// The files of code.
    files: Vec<Code>,
    /// The calls that have been tried.
    tried: RefCell<BTreeSet<String>>,
    /// The archive as it was written for a trial, until it is loaded.
    written: RefCell<Option<MemoryFile>>,
}

impl Archive {
    /// Opens an archive without running anything in it.
    ///
    /// # Errors
    /// Fails if the file does not exist, cannot be read, is not a zip file, or contains no TorchScript code. Unless
    /// archives are trusted, it also fails if the code calls a function that is not known to only compute.
    pub fn open(path: &Path) -> Result<Archive> {
        let shown = path.display();
        let container = Container::open(path)?;
        ensure!(
            container.has_code(),
            "{shown}: a zip file without TorchScript code, as torch.save writes: give the folder of a publisher, or export \
             the network, for example with scripts/export_torchscript.py (`--weights {shown}`)"
        );
        let files = container.code()?;
        if !TRUSTED.load(Ordering::Relaxed) {
            let way_out = "nothing of the archive was run; --trust loads it, if you know where it comes from";
            code::check(&files).map_err(|why| anyhow!("{shown}: {why:#}: {way_out}"))?;
        }
        ensure!(
            !container.has("model.json"),
            "{shown}: an archive of a version before PyTorch 1.2, which bella does not read: save the model anew"
        );
        let listed = listing::listed(&container, &files)?;
        let inputs = listed.class.as_deref().map_or_else(Vec::new, |class| code::inputs(&files, class));
        let (tried, written) = (RefCell::default(), RefCell::default());
        Ok(Archive { path: path.to_path_buf(), container, listed, inputs, files, tried, written })
    }

    /// Returns the name, shape and type of every parameter.
    pub fn listed(&self) -> &[Stored] {
        &self.listed.parameters
    }

    /// Returns whether a parameter is that of a table of embeddings (`torch.nn.Embedding`).
    pub fn is_table(&self, parameter: &str) -> bool {
        self.listed.tables.contains(parameter)
    }

    /// Returns the names of the tensors that `forward` takes; empty if the code does not tell.
    pub fn inputs(&self) -> &[String] {
        &self.inputs
    }

    /// Returns whether `forward` takes token ids with their mask, and may be the kinds of tokens, as a text encoder does.
    pub fn takes_texts(&self) -> bool {
        matches!(self.inputs.len(), 2 | 3) && !self.has("encode_image")
    }

    /// Returns the name and the stored tensor of every parameter, read anew.
    ///
    /// # Errors
    /// Fails if an entry is missing or damaged.
    pub fn parameters(&self) -> Result<Vec<(String, Tensor)>> {
        let read = |parameter: &Stored| Ok((parameter.name.clone(), parameter.read(&self.container)?));
        self.listed().iter().map(read).collect()
    }

    /// Checks that every parameter has its memory to itself, so that its values can be replaced alone.
    ///
    /// # Errors
    /// Fails with the first parameter of which another tensor is a view.
    pub fn check_apart(&self) -> Result<()> {
        apart::check(&self.listed.parameters, &self.listed.others).with_context(|| self.path.display().to_string())
    }

    /// Returns the type in which the matrices are stored, which is that of the images to pass in.
    pub fn kind(&self) -> Kind {
        // A half-precision CLIP keeps its embeddings in f32, and the token embedding is the largest parameter.
        let matrices = self.listed().iter().filter(|parameter| !parameter.name.contains("embedding"));
        matrices.max_by_key(|parameter| parameter.count()).map_or(Kind::Float, |parameter| parameter.kind)
    }

    /// Returns the TorchScript code of the archive, with all files joined.
    pub fn code(&self) -> String {
        self.files.iter().flat_map(|file| [file.text.as_str(), "\n"]).collect()
    }

    /// Returns whether a text stands in the TorchScript code of the archive.
    pub fn code_has(&self, text: &str) -> bool {
        self.files.iter().any(|file| file.text.contains(text))
    }

    /// Returns the output of the archive's [loaded](Self::load) `module` on `images: [B, 3, S, S]` in f32, from `encode_image` if it has
    /// one, otherwise from `forward`.
    pub fn encode_image(&self, module: &CModule, images: &Tensor) -> Result<Tensor> {
        self.call(module, self.image_method(), &self.image_input(images))
    }

    /// Tries [`encode_image`](Self::encode_image) first in a process of its own, as [`try_first`](Self::try_first) does.
    ///
    /// # Errors
    /// Fails if the process did not come through.
    pub fn try_images(&self, images: &Tensor) -> Result<()> {
        self.try_first(Some(self.image_method()), &self.image_input(images))
    }

    fn image_input(&self, images: &Tensor) -> [IValue; 1] {
        [IValue::Tensor(images.to_kind(self.kind()))]
    }

    /// Returns the method that takes images: `encode_image` if the module has one, otherwise `forward`.
    pub fn image_method(&self) -> &'static str {
        if self.has("encode_image") { "encode_image" } else { "forward" }
    }

    /// Returns the output of `encode_text` of the archive's [loaded](Self::load) `module` on `tokens: [B, T]` in f32, where T is its full
    /// context.
    ///
    /// # Errors
    /// Fails if the archive has no such method, or does not run here.
    pub fn encode_text(&self, module: &CModule, tokens: &Tensor) -> Result<Tensor> {
        ensure!(self.has(TEXT_METHOD), "the archive has no encode_text method");
        self.call(module, TEXT_METHOD, &[IValue::Tensor(tokens.shallow_clone())])
    }

    /// Tries [`encode_text`](Self::encode_text) first in a process of its own, if there is such a method.
    ///
    /// # Errors
    /// Fails if the process did not come through.
    pub fn try_texts(&self, tokens: &Tensor) -> Result<()> {
        if !self.has(TEXT_METHOD) {
            return Ok(());
        }
        self.try_first(Some(TEXT_METHOD), &[IValue::Tensor(tokens.shallow_clone())])
    }

    /// Loads the archive with libtorch, on the CPU and in evaluation mode. An archive that does not run here may still load.
    ///
    /// # Errors
    /// Fails as [`copy_on`](Self::copy_on) does.
    pub fn load(&self) -> Result<CModule> {
        self.copy_on(Device::Cpu).with_context(|| self.path.display().to_string())
    }

    /// Writes the archive again with its own code; `change` returns new values of parameters, by their names.
    ///
    /// # Errors
    /// Fails if libtorch cannot load it, if a parameter has another shape or shares its memory with another tensor, or if the
    /// file cannot be written.
    pub fn save_changed(&self, path: &Path, change: &dyn Fn(&str, &Tensor) -> Option<Tensor>) -> Result<()> {
        self.check_apart()?;
        let shown = path.display();
        let _guard = tch::no_grad_guard();
        let module = self.load()?;
        let failed = |e: tch::TchError| anyhow!("{shown}: {}", first_line(&e));
        for (name, mut parameter) in module.named_parameters().map_err(failed)? {
            if let Some(value) = change(&name, &parameter) {
                parameter.f_copy_(&value).map_err(failed)?;
            }
        }
        module.save(path).map_err(failed)
    }

    /// Loads the module anew on a device, in evaluation mode. It shares nothing with the others.
    ///
    /// # Errors
    /// Fails if libtorch cannot load the archive, with libtorch's message, or if an archive that is not known does not come
    /// through its trial.
    pub fn copy_on(&self, device: Device) -> Result<CModule> {
        self.try_first(None, &[])?;
        let ready = self.written.take().filter(|_| device == Device::Cpu);
        let file = ready.map_or_else(|| self.parts().written(device), Ok)?;
        clean::load(file.path(), device)
    }

    /// Tries a call of a method, or without one the loading of the archive, in a process of its own, unless that was done before
    /// or archives are trusted.
    ///
    /// # Errors
    /// Fails if the process did not come through.
    pub fn try_first(&self, method: Option<&str>, inputs: &[IValue]) -> Result<()> {
        let call = Call { method, inputs };
        let mut tried = self.tried.borrow_mut();
        let is_known = tried.contains(&call.key()) || method.is_none() && !tried.is_empty();
        if is_known || TRUSTED.load(Ordering::Relaxed) {
            return Ok(());
        }
        // The first trial comes before the first loading, which takes the same file.
        let is_first = tried.is_empty();
        let file = self.parts().written(Device::Cpu)?;
        trial::run(&file, &call, &mut tried).with_context(|| self.path.display().to_string())?;
        tried.insert(call.key());
        if is_first {
            self.written.replace(Some(file));
        }
        Ok(())
    }

    fn parts(&self) -> Parts<'_> {
        Parts { container: &self.container, code: &self.files, storages: &self.listed.storages }
    }

    fn has(&self, method: &str) -> bool {
        self.code_has(&format!("def {method}("))
    }

    fn call(&self, module: &CModule, method: &str, input: &[IValue]) -> Result<Tensor> {
        let _guard = tch::no_grad_guard();
        self.try_first(Some(method), input)?;
        Ok(tensor_of(clean::call(module, method, input)?)?.to_kind(Kind::Float))
    }
}

/// Returns the tensor, or the first one of a tuple (a scripted open_clip model returns image, text and scale).
pub fn tensor_of(output: IValue) -> Result<Tensor> {
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
