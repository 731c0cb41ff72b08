use serde_json::{Value, json};

use evenkeel_model::EntityKey;
use evenkeel_model::key::KeyError;

#[derive(Debug, Clone)]
pub(super) struct Person {
    pub(super) department: String,
    pub(super) number: String,
    pub(super) first_name: String,
    pub(super) last_name: String,
    pub(super) email: String,
    pub(super) manager: bool,
}

impl Person {
    fn new(
        department: &str,
        number: &str,
        first_name: &str,
        last_name: &str,
        manager: bool,
    ) -> Self {
        let email = format!("{first_name}.{last_name}@contoso.com");
        let [department, number, first_name, last_name] =
            [department, number, first_name, last_name].map(str::to_owned);
        Self {
            department,
            number,
            first_name,
            last_name,
            email,
            manager,
        }
    }

    pub(super) fn key(&self) -> Result<EntityKey, KeyError> {
        EntityKey::new(&*self.department, &*self.number)
    }

    pub(super) fn hire(&self) -> Value {
        json!({"op": "put", "table": "Employees", "id": format!("hire-{}", self.number), "entity": {
            "PartitionKey": self.department, "RowKey": self.number,
            "FirstName": self.first_name, "LastName": self.last_name, "Email": self.email, "IsManager": self.manager,
        }})
    }
}

pub(super) fn founders() -> Vec<Person> {
    vec![
        Person::new("Engineering", "000301", "Don", "Hall", false),
        Person::new("Marketing", "000201", "Pedro", "Gomez", false),
        Person::new("Marketing", "000202", "Donna", "Wells", true),
        Person::new("Sales", "000101", "Jun", "Cao", true),
        Person::new("Sales", "000102", "Ken", "Kwok", false),
        Person::new("Sales", "000103", "Maria", "Anders", false),
    ]
}

pub(super) fn namesake() -> Person {
    let jim = Person::new("Engineering", "000302", "Jim", "Cao", false);
    Person {
        email: "Jun.Cao@contoso.com".to_owned(),
        ..jim
    }
}

/// Two hundred people of a company that Contoso acquires.
pub(super) fn acquired() -> Vec<Person> {
    const FIRST: [&str; 10] = [
        "Ada", "Bo", "Chi", "Dag", "Eva", "Finn", "Gül", "Hana", "Ivo", "Jae",
    ];
    const LAST: [&str; 20] = [
        "Ahn", "Berg", "Costa", "Dias", "Eder", "Fox", "Gray", "Holm", "Ito", "Jung", "Kaya",
        "Lund", "Moss", "Nagy", "Okafor", "Park", "Quist", "Reyes", "Sato", "Toth",
    ];
    FIRST
        .iter()
        .flat_map(|first| LAST.iter().map(move |last| (first, last)))
        .zip(1..)
        .map(|((first, last), number)| {
            Person::new(
                "Fabrikam",
                &format!("{number:06}"),
                first,
                last,
                number % 40 == 0,
            )
        })
        .collect()
}
