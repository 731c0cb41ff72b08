use bytes::Bytes;

use super::PoisonMessage;
use evenkeel_model::QueueName;
use evenkeel_storage::{BlobStore, BlobUpload, ErrorClass, Missing, QueueStore, StoreError, Ttl};

/// Puts a message on a poison queue. If the body does not fit, it goes into a blob. A missing queue
/// or container is created.
pub(crate) async fn send(
    queues: &dyn QueueStore,
    blobs: &dyn BlobStore,
    poison: &QueueName,
    mut message: PoisonMessage,
) -> Result<(), StoreError> {
    if !message.fits()
        && let Some(blob) = message.body_blob_name()
        && let Some(body) = message.body.take()
    {
        let content = Bytes::from(body);
        let upload = BlobUpload {
            content_type: Some("text/plain; charset=utf-8".to_owned()),
            ..BlobUpload::default()
        };
        match blobs
            .put(&blob.container, &blob.name, content.clone(), &upload)
            .await
        {
            Err(error) if error.class == ErrorClass::NotFound(Missing::Container) => {
                blobs.create_container(&blob.container).await?;
                blobs
                    .put(&blob.container, &blob.name, content, &upload)
                    .await?;
            }
            put => {
                put?;
            }
        }
        message.body_blob = Some(blob);
    }
    let text = message.encode();
    match queues
        .put(poison, &text, std::time::Duration::ZERO, Ttl::Never)
        .await
    {
        Err(error) if error.class == ErrorClass::NotFound(Missing::Container) => {
            queues.create_queue(poison).await?;
            queues
                .put(poison, &text, std::time::Duration::ZERO, Ttl::Never)
                .await?;
        }
        put => {
            put?;
        }
    }
    Ok(())
}
