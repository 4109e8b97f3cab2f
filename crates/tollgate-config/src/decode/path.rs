//! Paths of files.

use std::path::PathBuf;

use crate::decode::Decoder;
use crate::decode::fields::Fields;
use crate::mistake::Mistake;
use crate::tree::Node;

impl Decoder<'_> {
    pub(super) fn path(&mut self, node: &Node, field: &str) -> Option<PathBuf> {
        let text = self.text(node, &format!("`{field}`"), "the path of a file")?;
        if text.is_empty() {
            let message = format!("`{field}` is empty");
            self.error(Mistake::new(node.span.clone(), message).help("write a path"));
            return None;
        }
        Some(PathBuf::from(text))
    }

    /// Reads a path that may be left out: `None` for one that is wrong.
    #[expect(clippy::option_option, reason = "absent and wrong are two things")]
    pub(super) fn optional_path(
        &mut self,
        fields: &Fields<'_>,
        field: &str,
    ) -> Option<Option<PathBuf>> {
        match fields.value(field, self) {
            Some(node) => self.path(node, field).map(Some),
            None => Some(None),
        }
    }

    pub(super) fn required_path(
        &mut self,
        fields: &Fields<'_>,
        field: &str,
        example: &str,
    ) -> Option<PathBuf> {
        let example = self.format.assign_text(field, example);
        let node = fields.required(field, &example, self)?;
        self.path(node, field)
    }
}
