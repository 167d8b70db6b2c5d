"""An S3 server as a process, and requests to it that no library here makes."""
