/** Log stores for Delta Lake: how a commit creates its file exactly once, and its checksum file on S3. */
package evenlag.storage;
