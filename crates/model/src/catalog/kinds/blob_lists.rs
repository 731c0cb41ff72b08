//! `kind = "index_entity"` with `store = "blob"`: for each value a blob with the sorted list of the primaries that have it.

use std::collections::BTreeSet;

use super::Kind;
use crate::catalog::canonical;
use crate::catalog::form::Form;
use crate::catalog::place::AccountSet;
use crate::catalog::view::OnConflict;
use crate::model::ContainerName;
use crate::model::blob_path::BlobPath;
use crate::model::template::Template;

/// `kind = "index_entity"` with `store = "blob"`: a blob for each value, with the sorted list of the primaries that have it.
#[derive(Debug, Clone)]
pub struct BlobLists {
    /// The accounts of the container: a list lies where the hash of its name says.
    pub accounts: AccountSet,
    /// The container of the lists.
    pub container: ContainerName,
    /// A list's name.
    pub name: BlobPath,
    /// The parts of a member. The primary's keys are among them, each by itself.
    pub member: Vec<Template>,
}

impl<P> Kind<P> for BlobLists {
    fn name(&self) -> &'static str {
        "index_entity"
    }

    fn form(&self) -> Form<'_, P> {
        Form::BlobLists(self)
    }

    fn properties(&self) -> BTreeSet<&str> {
        self.member.iter().flat_map(Template::properties).chain(self.name.properties()).collect()
    }

    fn canonical(&self, _: OnConflict) -> String {
        format!("member {}", canonical::list(&self.member))
    }
}
