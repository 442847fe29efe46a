//! The archives of CLIP that OpenAI published. Their addresses contain their SHA-256; `clip` and `open_clip` keep them in
//! the same folder.

use std::fmt;

use crate::base::paths::SCHEMES;

/// The start of the addresses.
pub const ADDRESS: &str = "https://openaipublic.azureedge.net/clip/models";

/// A published archive.
#[derive(Debug, PartialEq)]
pub struct Archive {
    /// The name behind `openai://`, which is that of the file without `.pt`.
    pub name: &'static str,
    pub sha256: &'static str,
}

impl Archive {
    pub fn file(&self) -> String {
        format!("{}.pt", self.name)
    }
}

impl fmt::Display for Archive {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}{}", SCHEMES[1], self.name)
    }
}

const fn archive(name: &'static str, sha256: &'static str) -> Archive {
    Archive { name, sha256 }
}

/// All of them, from `_MODELS` of `clip/clip.py` at github.com/openai/CLIP, compared with `pretrained.py` of open_clip 3.
pub const ARCHIVES: [Archive; 9] = [
    archive("RN50", "afeb0e10f9e5a86da6080e35cf09123aca3b358a0c3e3b6c78a7b63bc04b6762"),
    archive("RN101", "8fa8567bab74a42d41c5915025a8e4538c3bdbe8804a470a72f30b0d94fab599"),
    archive("RN50x4", "7e526bd135e493cef0776de27d5f42653e6b4c8bf9e0f653bb11773263205fdd"),
    archive("RN50x16", "52378b407f34354e150460fe41077663dd5b39c54cd0bfd2b27167a4a06ec9aa"),
    archive("RN50x64", "be1cfb55d75a9666199fb2206c106743da0f6468c9d327f3e0d0a543a9919d9c"),
    archive("ViT-B-32", "40d365715913c9da98579312b702a82c18be219cc2a73407c4526f58eba950af"),
    archive("ViT-B-16", "5806e77cd80f8b59890b7e101eabd078d9fb84e6937f9e85e4ecb61988df416f"),
    archive("ViT-L-14", "b8cca3fd41ae0c99ba7e8951adf17d267cdb84cd88be6f7c2e0eca1737a03836"),
    archive("ViT-L-14-336px", "3035c92b350959924f9f00213499208652fc7ea050643e8b385c2dac08641f02"),
];
