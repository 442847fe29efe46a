//! Checks the code of an archive before libtorch may run any of it. The code may only call itself, and operators that
//! are known to compute and do nothing else.
//!
//! Loading an archive runs code (`__setstate__`), and `torch.save` and `torch.from_file` write and read any file. An
//! unknown name is an error wherever it occurs and however it is called. So is syntax that the code of a vision
//! transformer does not need, such as a call of the value of an expression, or letters outside ASCII.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};

use crate::model::archive::container::Code;
use crate::model::archive::operators::{LANGUAGE, PRIMITIVE, REACHING_OUT, TENSOR};
use crate::model::archive::tokens::{Token, check_nesting, tokens};
use crate::model::archive::types;

/// Keywords that may precede a parenthesis.
const KEYWORDS: &[&str] = &[
    "and", "as", "assert", "class", "def", "del", "elif", "else", "for", "from", "if", "import", "in", "is", "not",
    "or", "raise", "return", "while", "with",
];

/// Checks the files of code of an archive.
///
/// # Errors
/// Fails at the first file that cannot be read as code, or that contains a name that is not known to only compute.
pub fn check(files: &[Code]) -> Result<()> {
    let mut all = Vec::new();
    for Code { path, text } in files {
        let read = tokens(text).and_then(|tokens| check_nesting(text, &tokens).map(|()| tokens));
        all.push(read.with_context(|| format!("code/{path}"))?);
    }
    let mut own = Own::default();
    all.iter().for_each(|tokens| own.add(tokens));
    for (Code { path, .. }, tokens) in files.iter().zip(&all) {
        check_file(tokens, &own).and_then(|()| types::check(tokens)).with_context(|| format!("code/{path}"))?;
    }
    Ok(())
}

fn check_file(tokens: &[Token], own: &Own) -> Result<()> {
    for (at, token) in tokens.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| tokens[before]);
        match token {
            Token::Name(name) => check_name(tokens, at, name, before, own)?,
            Token::Sign('(') if matches!(before, Some(Token::Sign(')' | ']') | Token::Text(_) | Token::Number(_))) => {
                bail!("it calls what an expression gives, and what that is cannot be told")
            }
            _ => {}
        }
    }
    Ok(())
}

/// Names that the code defines.
#[derive(Default)]
struct Own<'a> {
    /// The names of functions, methods and classes.
    defined: BTreeSet<&'a str>,
    /// Short names for paths, such as `_0 = __torch__.torch.nn.functional.layer_norm`.
    short: BTreeSet<&'a str>,
}

impl<'a> Own<'a> {
    fn add(&mut self, tokens: &[Token<'a>]) {
        for window in tokens.windows(3) {
            match *window {
                [Token::Name("def" | "class"), Token::Name(name), _] => drop(self.defined.insert(name)),
                [Token::Name(name), Token::Sign('='), Token::Name("__torch__")] => drop(self.short.insert(name)),
                _ => {}
            }
        }
    }
}

fn check_name(tokens: &[Token], at: usize, name: &str, before: Option<Token>, own: &Own) -> Result<()> {
    ensure!(!REACHING_OUT.contains(&name), "it names `{name}`, which reaches beyond the model");
    let called = tokens.get(at + 1) == Some(&Token::Sign('('));
    if before == Some(Token::Sign('.')) {
        let known = own.defined.contains(name) || TENSOR.contains(&name);
        // `torch.NAME` and `ops.NAME` were checked at their first word.
        ensure!(!called || known || head_is_library(tokens, at), "it calls `.{name}`, {UNKNOWN}");
        return Ok(());
    }
    match name {
        "torch" | "ops" | "__torch__" => check_path(&path(tokens, at)),
        "getattr" => check_getattr(tokens, at),
        _ => {
            let follows_definition = matches!(before, Some(Token::Name("def" | "class")));
            let known = KEYWORDS.contains(&name) || LANGUAGE.contains(&name) || own.short.contains(name);
            ensure!(!called || follows_definition || known, "it calls `{name}`, {UNKNOWN}");
            Ok(())
        }
    }
}

const UNKNOWN: &str = "which is not among the operators that are known to only compute";

/// Returns whether the dotted path through the name at `at` begins with the library or with the archive's own modules.
fn head_is_library(tokens: &[Token], mut at: usize) -> bool {
    while at >= 2 && tokens[at - 1] == Token::Sign('.') && matches!(tokens[at - 2], Token::Name(_)) {
        at -= 2;
    }
    matches!(tokens[at], Token::Name("torch" | "ops" | "__torch__"))
}

/// Returns the dotted path that begins at `at`.
fn path<'a>(tokens: &[Token<'a>], at: usize) -> Vec<&'a str> {
    let rest = tokens[at..].chunks(2).map_while(|pair| match *pair {
        [Token::Name(name), Token::Sign('.')] => Some((name, true)),
        [Token::Name(name), ..] => Some((name, false)),
        _ => None,
    });
    let mut found = Vec::new();
    for (name, goes_on) in rest {
        found.push(name);
        if !goes_on {
            break;
        }
    }
    found
}

fn check_path(path: &[&str]) -> Result<()> {
    let known = match path {
        ["torch", name] => TENSOR.contains(name),
        ["ops", "prim", name] => PRIMITIVE.contains(name),
        ["__torch__", "torch", "classes", ..] => false,
        ["__torch__", ..] => true,
        _ => false,
    };
    ensure!(known, "it names `{}`, {UNKNOWN}", path.join("."));
    Ok(())
}

/// Checks a call `getattr(value, "name")` with the name in quotes.
fn check_getattr(tokens: &[Token], at: usize) -> Result<()> {
    let mut depth = 0;
    for token in &tokens[at + 1..] {
        match token {
            Token::Sign('(') => depth += 1,
            Token::Sign(')') => depth -= 1,
            Token::Text(name) => {
                let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
                ensure!(plain && !REACHING_OUT.contains(name), "it asks for the attribute `{name}`, {UNKNOWN}");
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    Ok(())
}

/// Returns the names of the tensors that the `forward` of a class takes; empty if the code has no such method. Of those that
/// may be left out, only the kinds of tokens are named. `files` are the archive's files of code;
/// `class` is a full name such as `__torch__.models.Encoder`.
pub fn inputs(files: &[Code], class: &str) -> Vec<String> {
    let Some((module, name)) = class.rsplit_once('.') else { return Vec::new() };
    let file = files.iter().find(|file| file.module() == module);
    file.and_then(|file| of_class(&file.text, name)).unwrap_or_default()
}

fn of_class(text: &str, name: &str) -> Option<Vec<String>> {
    let head = format!("class {name}(");
    let start = if text.starts_with(&head) { 0 } else { text.find(&format!("\n{head}"))? + 1 };
    let body = &text[start + head.len()..];
    let end = body.find("\nclass ").unwrap_or(body.len());
    let method = body[..end].split_once("  def forward(")?.1;
    Some(arguments(method).into_iter().skip(1).filter_map(|argument| tensor(&argument)).collect())
}

/// Returns the name of an argument such as `x: Tensor`; `None` for other types, and for what may be left out.
fn tensor(argument: &str) -> Option<String> {
    let (name, kind) = argument.split_once(':')?;
    let (name, kind) = (name.trim(), kind.trim());
    let counts = kind == "Tensor" || (kind.starts_with("Optional[Tensor]") && name.contains("token_type"));
    counts.then(|| name.to_string())
}

/// Splits arguments such as `x: Tensor, y: Optional[Tensor]=None) -> Tensor`.
fn arguments(text: &str) -> Vec<String> {
    let (mut depth, mut found, mut current) = (0, Vec::new(), String::new());
    for sign in text.chars() {
        match sign {
            ')' if depth == 0 => break,
            ',' if depth == 0 => found.push(std::mem::take(&mut current)),
            _ => {
                depth += i32::from(matches!(sign, '(' | '[')) - i32::from(matches!(sign, ')' | ']'));
                current.push(sign);
            }
        }
    }
    found.push(current);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(code: &str) -> Result<()> {
        check(&[Code { path: "a.py".to_string(), text: code.to_string() }])
    }

    fn refused(code: &str) -> String {
        format!("{:#}", checked(code).expect_err(code))
    }

    #[test]
    fn the_code_of_models_passes() {
        checked(
            "class Block(Module):\n  __parameters__ = [\"weight\", ]\n  weight : Tensor\n  mlp : __torch__.Mlp\n\
             \x20 def forward(self: __torch__.Block,\n    x: Tensor) -> Tensor:\n    _0 = __torch__.torch.nn.functional.pad\n\
             \x20   mlp = self.mlp\n    y = _0((mlp).forward(x, ), [0, 1], \"constant\", None, )\n\
             \x20   (getattr(self, \"0\")).forward(y, )\n    _1 = ops.prim.NumToTensor(torch.size(y, 1))\n\
             \x20   if torch.__isnot__(_1, None):\n      pass\n    return torch.to(torch.add_(y, 1.5e-05), dtype=5)\n",
        )
        .unwrap();
    }

    #[test]
    fn whatever_reaches_out_is_refused_by_name() {
        for (code, name) in [
            ("torch.save(x, \"f\")", "`torch.save`"),
            ("x.save(\"f\")", "`save`"),
            ("1.0.save(\"f\")", "`save`"),
            ("f = torch . save", "`torch.save`"),
            ("getattr(x, \"save\")", "`save`"),
            ("getattr(x, \"\\x73ave\")", "`\\x73ave`"),
            ("torch.from_file(\"f\", True, 3)", "`torch.from_file`"),
            ("print(x)", "`print`"),
            ("p = print", "`print`"),
            ("def save(self):\n  pass\nx.save(\"f\")", "`save`"),
            ("fork(x)", "`fork`"),
            ("ops.aten.relu(x)", "`ops.aten.relu`"),
            ("ops.prims.sum(x)", "`ops.prims.sum`"),
            ("ops.prim.Print(x)", "`ops.prim.Print`"),
            ("ops.debugprims.load_tensor(\"f\")", "`ops.debugprims.load_tensor`"),
            ("torch.ops.x(y)", "`torch.ops.x`"),
            ("torch.quantile(x)", "`torch.quantile`"),
            ("x.set_(y)", "`.set_`"),
            ("helper(x)", "`helper`"),
            ("x : __torch__.torch.classes.c10d.Store", "`__torch__.torch.classes.c10d.Store`"),
            ("(f)(x)", "what an expression gives"),
            ("[f][0](x)", "what an expression gives"),
            ("ｓave(x)", "a sign that TorchScript does not have"),
            ("x = \"abc\ndef\"", "does not end"),
            ("x = \"abc", "does not end"),
            // Quotes of either kind, long or escaped, do not hide a name.
            ("x = \"\\\"\" + torch.save(y, \"\")", "`torch.save`"),
            ("x = '\"'\ntorch.save(y, '\"')", "`torch.save`"),
            ("x = \"\"\"a\"b\"\"\"\ntorch.save(y, \"\")", "`torch.save`"),
            ("# type: (torch.save)", "a comment"),
            ("x = 1 \\\n + torch.save(y)", "a line that goes on"),
            ("y = torch.to(x, 99)", "`99`"),
        ] {
            let said = refused(code);
            assert!(said.contains(name), "{code}: {said}");
        }
    }

    #[test]
    fn lists_are_sorted_and_disjoint() {
        for list in [TENSOR, PRIMITIVE, LANGUAGE, REACHING_OUT] {
            assert!(list.iter().collect::<BTreeSet<_>>().len() == list.len());
        }
        for list in [TENSOR, PRIMITIVE, LANGUAGE] {
            assert!(!list.iter().any(|name| REACHING_OUT.contains(name)));
        }
    }

    #[test]
    fn inputs_are_those_of_the_class_that_is_asked_for() {
        let code = "class Other(Module):\n  def forward(self: __torch__.Other,\n    x: Tensor) -> Tensor:\n    return x\n\
                    class Encoder(Module):\n  __parameters__ = []\n  def forward(self: __torch__.m.Encoder,\n    \
                    input_ids: Tensor,\n    more: Dict[str, Tensor],\n    token_type_ids: Optional[Tensor]=None,\n    \
                    attn_mask: Optional[Tensor]=None,\n    causal: bool=False) -> Tuple[Tensor, Tensor]:\n    pass\n\
                    class Last(Module):\n  def forward(self: __torch__.m.Last) -> Tensor:\n    pass\n";
        let file = |path: &str, text: &str| Code { path: path.to_string(), text: text.to_string() };
        let files = [file("__torch__/a.py", ""), file("__torch__/m.py", code)];
        assert_eq!(inputs(&files, "__torch__.m.Encoder"), ["input_ids", "token_type_ids"]);
        assert_eq!(inputs(&files, "__torch__.m.Other"), ["x"]);
        assert!(inputs(&files, "__torch__.m.Last").is_empty() && inputs(&files, "__torch__.m.None").is_empty());
    }
}
