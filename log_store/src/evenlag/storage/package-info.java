/** Log stores for Delta Lake: how a commit creates its file exactly once. */
package evenlag.storage;
