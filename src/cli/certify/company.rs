//! Makes the changes of the application during the chaos, and computes their expected result. Pure.
//!
//! The application creates and renames an employee by writes. A job makes the last change, and no
//! write of the application follows. So there is one expected result, however often and in whatever
//! order jobs are delivered. No view sets properties on employees: such a write could follow the
//! last job, and a job does not change an entity that was written after it was sent.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use evenkeel_model::key::KeyError;
use evenkeel_model::{Entity, EntityKey, odata};
use evenkeel_storage::Rng;

pub(super) const EMPLOYEES: &str = "Employees";
const BUILDINGS: &str = "Buildings";
const ROOMS: &str = "Rooms";
pub(super) const FORMER: &str = "FormerEmployees";

/// Number of departments. Each is a partition.
const DEPARTMENTS: u32 = 5;
/// One in this many employees is a manager.
const MANAGERS: u32 = 12;
/// Minimum time between the last write of an employee and the job that makes the last change. A job
/// does not change an entity that was written after the job was sent. Queues round the time of
/// sending to whole seconds, so a job that follows too soon might seem older than the write.
const SETTLING_TIME: Duration = Duration::from_secs(5);

const FIRST: [&str; 8] = ["Ada", "Bo", "Chi", "Dag", "Eva", "Gül", "Hana", "Ivo"];
const LAST: [&str; 12] = [
    "Ahn", "Berg", "Costa", "Dias", "Eder", "Fox", "Holm", "Ito", "Kaya", "Okafor", "Sato", "Toth",
];

#[derive(Debug, Clone, PartialEq)]
pub(super) struct CompanyChange {
    /// The table and the entity that the application merges directly. `None` if only the job
    /// changes something.
    pub(super) write: Option<(&'static str, Entity)>,
    pub(super) job: Value,
}

#[derive(Debug, Clone)]
struct Employee {
    number: u32,
    /// Number of times that the employee was renamed.
    version: u32,
    /// Time of the last write by the application; `None` if a job wrote the employee.
    written: Option<Duration>,
    end: Employment,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Employment {
    Changing,
    Unchanging,
    Deleted,
    Archived,
}

#[derive(Debug, Default)]
pub(super) struct ChaosCompany {
    employees: Vec<Employee>,
    moves: u32,
}

/// Employees by key. The entities have only properties that the application wrote.
pub(super) type Staff = BTreeMap<EntityKey, Entity>;

impl Employee {
    fn key(&self) -> Result<EntityKey, KeyError> {
        EntityKey::new(department(self.number), format!("{:06}", self.number))
    }

    fn entity(&self) -> Result<Entity, KeyError> {
        let name = |names: &[&'static str], number: u32| names[number as usize % names.len()];
        Ok(Entity::new(self.key()?)
            .with("FirstName", name(&FIRST, self.number))
            .with("LastName", name(&LAST, self.number + self.version))
            .with(
                "Email",
                format!("{}.{}@contoso.com", self.number, self.version),
            )
            .with("IsManager", self.number.is_multiple_of(MANAGERS)))
    }

    fn job(&self, op: &str) -> Result<Value, KeyError> {
        let key = self.key()?;
        Ok(json!({"op": op, "table": EMPLOYEES, "pk": key.pk, "rk": key.rk}))
    }

    fn put(&self, mode: &str) -> Result<Value, KeyError> {
        Ok(
            json!({"op": "put", "mode": mode, "table": EMPLOYEES, "entity": odata::encode(&self.entity()?)}),
        )
    }
}

fn department(number: u32) -> String {
    format!("Department {}", number % DEPARTMENTS)
}

impl ChaosCompany {
    pub(super) fn change(
        &mut self,
        rng: &dyn Rng,
        now: Duration,
    ) -> Result<CompanyChange, KeyError> {
        let drawn = rng.next_u64() % 100;
        match drawn {
            0..30 => self.hire(Some(now)),
            30..40 => self.hire(None),
            40..70 => self.rename(rng, now),
            70..88 => self.end(rng, now),
            _ => self.moves(rng),
        }
    }

    fn hire(&mut self, written: Option<Duration>) -> Result<CompanyChange, KeyError> {
        let number = u32::try_from(self.employees.len()).unwrap_or(u32::MAX);
        let end = if written.is_some() {
            Employment::Changing
        } else {
            Employment::Unchanging
        };
        let employee = Employee {
            number,
            version: 0,
            written,
            end,
        };
        let change = match written {
            Some(_) => CompanyChange {
                write: Some((EMPLOYEES, employee.entity()?)),
                job: employee.job("sync")?,
            },
            None => CompanyChange {
                write: None,
                job: employee.put("replace")?,
            },
        };
        self.employees.push(employee);
        Ok(change)
    }

    /// Chooses a random employee that may still change and was last written at or before this time.
    fn chosen(&mut self, rng: &dyn Rng, before: Duration) -> Option<&mut Employee> {
        let may = |employee: &&mut Employee| {
            employee.end == Employment::Changing
                && employee.written.is_some_and(|written| written <= before)
        };
        let mut those: Vec<&mut Employee> = self.employees.iter_mut().filter(may).collect();
        let many = u64::try_from(those.len()).unwrap_or(1).max(1);
        let one = usize::try_from(rng.next_u64() % many).unwrap_or(0);
        (one < those.len()).then(|| those.swap_remove(one))
    }

    fn rename(&mut self, rng: &dyn Rng, now: Duration) -> Result<CompanyChange, KeyError> {
        let Some(employee) = self.chosen(rng, now) else {
            return self.hire(Some(now));
        };
        employee.version += 1;
        employee.written = Some(now);
        Ok(CompanyChange {
            write: Some((EMPLOYEES, employee.entity()?)),
            job: employee.job("sync")?,
        })
    }

    /// Makes the last change of a randomly chosen employee, by a job.
    fn end(&mut self, rng: &dyn Rng, now: Duration) -> Result<CompanyChange, KeyError> {
        let Some(employee) = now
            .checked_sub(SETTLING_TIME)
            .and_then(|before| self.chosen(rng, before))
        else {
            return self.hire(Some(now));
        };
        let job = match rng.next_u64() % 3 {
            0 => {
                employee.end = Employment::Deleted;
                employee.job("delete")?
            }
            1 => {
                employee.end = Employment::Archived;
                let key = employee.key()?;
                json!({"op": "archive", "archive": "former_employees", "pk": key.pk, "rk": key.rk})
            }
            _ => {
                employee.end = Employment::Unchanging;
                employee.version += 1;
                employee.put("merge")?
            }
        };
        Ok(CompanyChange { write: None, job })
    }

    /// Gives a department another building, or one more room.
    fn moves(&mut self, rng: &dyn Rng) -> Result<CompanyChange, KeyError> {
        self.moves += 1;
        let department =
            department(u32::try_from(rng.next_u64() % u64::from(DEPARTMENTS)).unwrap_or(0));
        let (table, rk) = if self.moves.is_multiple_of(2) {
            (BUILDINGS, "building".to_owned())
        } else {
            (ROOMS, format!("{:04}", self.moves))
        };
        let entity = Entity::new(EntityKey::new(&*department, &*rk)?)
            .with("Name", format!("{table} {}", self.moves));
        Ok(CompanyChange {
            write: Some((table, entity)),
            job: json!({"op": "sync", "table": table, "pk": department, "rk": rk}),
        })
    }

    /// The employees that must exist, and the employees that must be archived.
    pub(super) fn staff(&self) -> Result<(Staff, Staff), KeyError> {
        let those = |ends: &[Employment]| -> Result<Staff, KeyError> {
            let employees = self
                .employees
                .iter()
                .filter(|employee| ends.contains(&employee.end));
            employees
                .map(|employee| Ok((employee.key()?, employee.entity()?)))
                .collect()
        };
        Ok((
            those(&[Employment::Changing, Employment::Unchanging])?,
            those(&[Employment::Archived])?,
        ))
    }
}

/// Describes the differences between the found and the expected entities. Only the application's
/// properties are compared.
pub(super) fn compare(table: &str, mut wanted: Staff, found: Vec<Entity>) -> Vec<String> {
    let mut findings = Vec::new();
    for entity in found {
        match wanted.remove(&entity.key) {
            None => findings.push(format!("{table}{}: exists, but should not", entity.key)),
            Some(wanted) => {
                for (name, value) in &wanted.properties {
                    if entity.get(name) != Some(value) {
                        findings.push(format!(
                            "{table}{}: {name} is {:?}, but should be {value:?}",
                            entity.key,
                            entity.get(name)
                        ));
                    }
                }
            }
        }
    }
    findings.extend(
        wanted
            .into_keys()
            .map(|key| format!("{table}{key}: is lost")),
    );
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_storage::system::SeededRng;

    #[test]
    fn the_last_job_about_an_employee_follows_the_last_write_after_some_time() {
        let rng = SeededRng::new(3);
        let mut company = ChaosCompany::default();
        let mut written: BTreeMap<String, (Duration, bool)> = BTreeMap::new();
        for tick in 0..2_000 {
            let now = Duration::from_millis(300 * tick);
            let CompanyChange { write, job } = company.change(&rng, now).unwrap();
            let key = |value: &Value| format!("{}/{}", value["pk"], value["rk"]);
            let ends =
                matches!(job["op"].as_str(), Some("delete" | "archive")) || job["mode"] == "merge";
            let about = if job["op"] == "put" {
                format!(
                    "{}/{}",
                    job["entity"]["PartitionKey"], job["entity"]["RowKey"]
                )
            } else {
                key(&job)
            };
            let before = written.get(&about).copied();
            assert!(!before.is_some_and(|(_, ended)| ended), "{about}: {job}");
            if ends {
                assert!(now >= before.unwrap().0 + SETTLING_TIME, "{about}: {job}");
            }
            assert!(write.is_some() || job["op"] != "sync", "{job}");
            if job["table"] != BUILDINGS && job["table"] != ROOMS {
                written.insert(about, (now, ends));
            }
        }
        let (here, archived) = company.staff().unwrap();
        assert!(
            here.len() > 300 && archived.len() > 50,
            "{} {}",
            here.len(),
            archived.len()
        );
    }

    #[test]
    fn lost_changed_and_unexpected_entities_are_found() {
        let key = |rk: &str| EntityKey::new("Department 1", rk).unwrap();
        let staff = |names: &[(&str, &str)]| -> Vec<Entity> {
            names
                .iter()
                .map(|(rk, name)| Entity::new(key(rk)).with("FirstName", *name))
                .collect()
        };
        let wanted: Staff = staff(&[("1", "Ada"), ("2", "Bo")])
            .into_iter()
            .map(|entity| (entity.key.clone(), entity))
            .collect();
        assert_eq!(
            compare(
                EMPLOYEES,
                wanted.clone(),
                staff(&[("1", "Ada"), ("2", "Bo")])
            ),
            Vec::<String>::new()
        );
        let findings = compare(EMPLOYEES, wanted, staff(&[("2", "Chi"), ("3", "Ivo")])).join("; ");
        for words in [
            "1\"): is lost",
            "FirstName is",
            "3\"): exists, but should not",
        ] {
            assert!(findings.contains(words), "{findings}");
        }
    }
}
