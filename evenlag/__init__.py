"""Everything of evenlag that needs no JVM: policy, lake, Kafka, publishing, audit, report and the command."""
